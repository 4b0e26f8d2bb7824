"""The places from which readers read, with operations of tests on each of them."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from lakehold.errors import UpstreamUnavailable
from lakehold.ingest.read.files import FilesReader
from lakehold.ingest.read.kafka import KafkaReader
from lakehold.ingest.read.reader import Reader
from lakehold.kafka.connection_options import kafka_options
from lakehold.model.offsets import TopicPartition
from tests.kafka_broker import Broker
from tests.recorded_files import append, line
from tests.waiting import wait_for

_KNOWN_WITHIN_S = 30

Header = tuple[str, bytes | None]


class Upstream(ABC):
    """A place from which a reader reads, and operations of tests on it."""

    reader: Reader

    @abstractmethod
    def new_topic(self) -> str:
        """Create a topic without records, and return its name."""

    @abstractmethod
    def publish(self, topic: str, values: Sequence[bytes], partition: int = 0, headers: Sequence[Header] = ()) -> None:
        """Append records with key `k` and timestamp 1000, whose offsets may leave gaps."""

    @abstractmethod
    def lose(self, topic: str) -> None:
        """Delete records that may not have been read."""

    @abstractmethod
    def recreate(self, topic: str) -> None:
        """Replace a topic by an empty one of the same name."""

    @abstractmethod
    def unreachable(self) -> Reader:
        """Return a reader of a place that does not exist."""


class RecordedDirectory(Upstream):
    """A directory with one file per partition; offsets begin at 7 and leave gaps."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._next_offset: dict[tuple[str, int], int] = {}
        self.reader = FilesReader(directory.as_uri(), parallelism=2)

    def new_topic(self) -> str:
        return f"t-{uuid.uuid4().hex[:8]}"

    def publish(self, topic: str, values: Sequence[bytes], partition: int = 0, headers: Sequence[Header] = ()) -> None:
        offset = self._next_offset.get((topic, partition), 7)
        lines = [line(topic, partition, offset + 2 * i, value, headers=headers) for i, value in enumerate(values)]
        append(self._file(topic, partition), lines)
        self._next_offset[topic, partition] = offset + 2 * len(values) + 3

    def lose(self, topic: str) -> None:
        self._file(topic, 0).unlink()

    def recreate(self, topic: str) -> None:
        self._file(topic, 0).write_text("")

    def unreachable(self) -> Reader:
        return FilesReader(str(self._directory / "missing"))

    def _file(self, topic: str, partition: int) -> Path:
        return self._directory / topic / f"{partition}.jsonl"


class Cluster(Upstream):
    """A broker; offsets have gaps because every publication is a transaction beside an aborted one."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.reader = KafkaReader(kafka_options({"BROKER": broker.address}), parallelism=2)

    def new_topic(self) -> str:
        return self._broker.create_topic(partitions=2)

    def publish(self, topic: str, values: Sequence[bytes], partition: int = 0, headers: Sequence[Header] = ()) -> None:
        self._broker.transaction(topic, [b"rolled back"] * 3, commit=False, partition=partition)
        self._broker.transaction(topic, values, commit=True, partition=partition, headers=headers)

    def lose(self, topic: str) -> None:
        end = self.reader.fetch_offsets([topic]).partitions[TopicPartition(topic, 0)].end_exclusive
        self._broker.delete_records(topic, 0, end - 1)

    def recreate(self, topic: str) -> None:
        self._broker.delete_topic(topic)
        self._broker.create_topic(name=topic, partitions=2)
        wait_for(lambda: self._is_known(topic), within_s=_KNOWN_WITHIN_S)

    def unreachable(self) -> Reader:
        return KafkaReader(kafka_options({"BROKER": "127.0.0.1:9"}), timeout_s=1)

    def _is_known(self, topic: str) -> bool:
        """Return whether the reader's client already knows the leader of the new topic."""
        try:
            self.reader.fetch_offsets([topic])
        except UpstreamUnavailable:
            return False
        return True
