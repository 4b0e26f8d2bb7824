"""A broker for tests of reading, which they may stop and whose topics they may delete."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from lakehold.servers import processes
from lakehold.stack.parts.kafka import Kafka
from tests.stack_fixtures import free_ports
from tests.waiting import wait_for

_DEADLINE_S = 60.0
_log = logging.getLogger("lakehold.librdkafka")  # without it the clients write to stderr


class Broker:
    """A running broker, and operations of tests on it."""

    def __init__(self, directory: Path, part: type[Kafka] = Kafka) -> None:
        self._part = part(directory, free_ports())
        for folder in (self._part.folder, self._part.log.parent, self._part.pid_file.parent):
            folder.mkdir(parents=True)
        self.start()
        self.address = self._part.addresses.kafka
        self.admin = AdminClient({"bootstrap.servers": self.address}, logger=_log)

    def create_topic(self, *, partitions: int = 1, name: str = "", **config: str) -> str:
        """Create a topic, by default under a new name, and wait until it has leaders."""
        name = name or f"t-{uuid.uuid4().hex[:8]}"
        # The records of tests date from 1970, and every five minutes a broker deletes old records.
        wanted = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}
        topic = NewTopic(name, partitions, 1, config=wanted)
        wait_for(lambda: _created(self.admin, topic))
        wait_for(lambda: len(self.admin.list_topics(name, timeout=5).topics[name].partitions) == partitions)
        return name

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(_DEADLINE_S)
        wait_for(lambda: name not in self.admin.list_topics(timeout=5).topics)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records below an offset, as retention does."""
        partition_of_topic = KafkaPartition(topic, partition, before)
        self.admin.delete_records([partition_of_topic])[partition_of_topic].result(_DEADLINE_S)

    def produce(
        self, topic: str, values: Iterable[bytes], partition: int = 0, *, timestamps: Iterable[int] = repeat(1_000)
    ) -> None:
        # A producer does not know of new partitions for minutes, so each call makes a new one.
        producer = Producer({"bootstrap.servers": self.address, "queue.buffering.max.messages": 1_000_000}, logger=_log)
        for value, timestamp in zip(values, timestamps):  # noqa: B905 - timestamps may be more
            producer.produce(topic, value, key=b"k", partition=partition, timestamp=timestamp)
        assert producer.flush(_DEADLINE_S) == 0

    def transaction(
        self,
        topic: str,
        values: Iterable[bytes],
        *,
        commit: bool,
        partition: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Produce values in their own transaction."""
        producer = self.begin_transaction(topic, values, partition=partition, headers=headers)
        producer.commit_transaction(_DEADLINE_S) if commit else producer.abort_transaction(_DEADLINE_S)
        self.wait_until_stable(topic, partition)

    def wait_until_stable(self, topic: str, partition: int = 0) -> None:
        """Wait for the markers of ended transactions, which the broker writes after it answers."""
        wait_for(lambda: len({self._end(topic, partition, level) for level in IsolationLevel}) == 1)

    def _end(self, topic: str, partition: int, level: IsolationLevel) -> int:
        partition_of_topic = KafkaPartition(topic, partition)
        future = self.admin.list_offsets({partition_of_topic: OffsetSpec.latest()}, isolation_level=level)[
            partition_of_topic
        ]
        return int(future.result(_DEADLINE_S).offset)

    def begin_transaction(
        self,
        topic: str,
        values: Iterable[bytes],
        *,
        partition: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> Producer:
        """Produce values in a transaction that stays open."""
        options: dict[str, Any] = {"bootstrap.servers": self.address, "transactional.id": uuid.uuid4().hex}
        producer = Producer(options, logger=_log)
        producer.init_transactions(_DEADLINE_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, key=b"k", partition=partition, timestamp=1_000, headers=[*headers])
        assert producer.flush(_DEADLINE_S) == 0
        return producer

    def add_partitions(self, topic: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(_DEADLINE_S)
        wait_for(lambda: len(self.admin.list_topics(topic, timeout=5).topics[topic].partitions) == total)

    def start(self) -> None:
        self._part.prepare()
        processes.start(self._part.command(), self._part.pid_file)
        wait_for(self._part.is_healthy)

    def stop(self) -> None:
        process = processes.recorded(self._part.pid_file)
        if process:
            processes.stop(process, self._part.stop_signal, 10.0)

    def lose_after(self, topic: str, write: Callable[[], object]) -> None:
        """Crash the broker with its machine: what `write` wrote to the topic had not reached the disk, and is lost."""
        (log,) = (self._part.folder / "data" / f"{topic}-0").glob("*.log")
        written = log.stat().st_size
        write()
        process = processes.recorded(self._part.pid_file)
        assert process is not None
        process.kill()
        wait_for(lambda: processes.has_ended(process))
        with log.open("r+b") as content:
            content.truncate(written)
        self.start()


def _created(admin: AdminClient, topic: NewTopic) -> bool:
    try:
        admin.create_topics([topic])[topic.topic].result(_DEADLINE_S)
    except KafkaException:
        # A topic of this name is still being deleted, or a producer of an earlier test has made the broker create it again.
        with suppress(KafkaException):
            admin.delete_topics([topic.topic])[topic.topic].result(_DEADLINE_S)
        return False
    return True


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Start the session's broker when the first test requests it."""
    broker = Broker(tmp_path_factory.mktemp("broker"))
    yield broker
    broker.stop()
