"""Sources over a broker's topics, ingested together in random order and killed at times, get every record exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from random import Random

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.read.kafka import KafkaReader
from lakehold.ingest.read.reader import FetchedOffsets
from lakehold.lake import Lake
from lakehold.model.offsets import OffsetRange, TopicPartition
from tests.conftest import LakeFactory
from tests.counters import decodes
from tests.kafka_broker import Broker
from tests.kafka_transactions import KafkaConnector
from tests.transaction_files import TRANSACTION_TOPIC

pytestmark = [pytest.mark.stack, pytest.mark.spark]

SOURCES = {"one": (0, 1), "two": (1, 2), "three": (0, 1, 2)}
"""The topics that each source has tables of."""


class Fed:
    """Three topics of two partitions, and three sources over two or three of them."""

    def __init__(self, lake: Lake, broker: Broker) -> None:
        self.lake, self.broker = lake, broker
        self.topics = [broker.create_topic(partitions=2) for _ in range(3)]
        self.written: list[list[int]] = [[], [], []]
        for source, topics in SOURCES.items():
            lake.sql(
                f"CREATE CONNECTION kafka_{source} TO KAFKA (BROKER '{broker.address}');"
                f"CREATE SOURCE {source} FROM KAFKA CONNECTION kafka_{source} "
                f"(TOPICS ({', '.join(repr(self.topics[n]) for n in topics)})) FORMAT JSON"
            )
            for n in topics:
                lake.sql(
                    f"CREATE TABLE {source}.t{n} (k BIGINT, v BIGINT) FROM SOURCE {source} (TOPIC '{self.topics[n]}') "
                    "ENVELOPE UPSERT"
                )

    def write(self, n: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.broker.address})
        for _ in range(count):
            key = len(self.written[n])
            producer.produce(self.topics[n], b'{"v": %d}' % key, b'{"k": %d}' % key, partition=key % 2)
            self.written[n].append(key)
        assert producer.flush(60) == 0

    def ingest(self, *sources: str) -> dict[str, int]:
        """Ingest the sources together; return the number of records of each."""
        records = dict.fromkeys(sources, 0)
        for report in self.lake.batches_together(sources):
            assert isinstance(report, BatchReport)
            assert not report.stopped
            records[report.source] += report.records
        return records

    def assert_complete(self) -> None:
        for source, topics in SOURCES.items():
            for n in topics:
                rows = [key for (key,) in self.lake.sql(f"SELECT k FROM {source}.t{n} ORDER BY k").rows]
                assert rows == self.written[n]


@pytest.fixture
def fed(make_lake: LakeFactory, broker: Broker) -> Fed:
    return Fed(make_lake(max_batch_records=40), broker)


def test_shared_topics_are_read_and_decoded_once(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[OffsetRange] = []
    in_driver = KafkaReader.in_driver

    def recorded(self: KafkaReader, ranges: Collection[OffsetRange]) -> pa.Table:
        read.extend(ranges)
        return in_driver(self, ranges)

    monkeypatch.setattr(KafkaReader, "in_driver", recorded)
    for n in range(3):
        fed.write(n, 4)
    before = decodes(*SOURCES)
    assert fed.ingest(*SOURCES) == {"one": 8, "two": 8, "three": 12}
    after = decodes(*SOURCES)
    assert (after[0] - before[0], after[1] - before[1]) == (3, 4)
    assert sorted(r.topic_partition.topic for r in read) == sorted(fed.topics * 2)
    fed.assert_complete()


@pytest.mark.parametrize("with_transactions", [("shop", "billing"), ("billing",)], ids=["both", "the second"])
def test_a_transaction_topic_is_fetched_and_read_once(
    make_lake: LakeFactory, broker: Broker, monkeypatch: pytest.MonkeyPatch, with_transactions: Collection[str]
) -> None:
    fetches: list[frozenset[str]] = []
    read: Counter[tuple[TopicPartition, int]] = Counter()
    fetch, in_driver = KafkaReader.fetch_offsets, KafkaReader.in_driver

    def recorded_fetch(self: KafkaReader, topics: Collection[str], ordered: str | None = None) -> FetchedOffsets:
        fetches.append(frozenset(topics))
        return fetch(self, topics, ordered)

    def recorded_read(self: KafkaReader, ranges: Collection[OffsetRange]) -> pa.Table:
        read.update((r.topic_partition, at) for r in ranges for at in range(r.start_inclusive, r.end_exclusive))
        return in_driver(self, ranges)

    lake, connector = make_lake(), KafkaConnector(broker)
    topics = {broker.create_topic(name=name) for name in ("shop.public.a", "shop.public.b", TRANSACTION_TOPIC)}
    sources = ("shop", "billing")
    for source in sources:
        clause = f"TRANSACTION METADATA TOPIC '{TRANSACTION_TOPIC}'" if source in with_transactions else ""
        lake.sql(
            f"CREATE CONNECTION kafka_{source} TO KAFKA (BROKER '{broker.address}');"
            f"CREATE SOURCE {source} FROM KAFKA CONNECTION kafka_{source} (TOPICS ('shop.public.a', 'shop.public.b')) "
            f"FORMAT JSON {clause}"
        )
        for table in "ab":
            lake.sql(
                f"CREATE TABLE {source}.{table} (id BIGINT, v BIGINT) FROM SOURCE {source} (TOPIC 'shop.public.{table}') "
                "ENVELOPE DEBEZIUM"
            )
    connector.transaction(("a", 1, 10), ("b", 1, 10))
    connector.transaction(("b", 1, 20), ("b", 2, 30))
    monkeypatch.setattr(KafkaReader, "fetch_offsets", recorded_fetch)
    monkeypatch.setattr(KafkaReader, "in_driver", recorded_read)
    list(lake.batches_together(sources))
    assert fetches == [topics]
    assert len(read) == 4 + 1 + 3
    assert set(read.values()) == {1}
    for source in sources:
        assert sorted(lake.sql(f"SELECT v FROM {source}.b").rows) == [(20,), (30,)]
    for topic in topics:
        broker.delete_topic(topic)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_sources_that_drift_apart_meet_again(fed: Fed, seed: int) -> None:
    random = Random(seed)
    for _ in range(4):
        for n in range(3):
            fed.write(n, random.choice([0, 1, 5, 60]))
        sources = random.sample(list(SOURCES), random.randint(1, 3))
        if random.random() < 0.3:
            batches = fed.lake.batches_together(sources)
            next(batches)
            batches.close()
        else:
            fed.ingest(*sources)
    fed.ingest(*SOURCES)
    fed.assert_complete()
    fed.write(1, 4)
    before = decodes(*SOURCES)
    assert fed.ingest(*SOURCES) == dict.fromkeys(SOURCES, 4)
    assert decodes(*SOURCES)[1] - before[1] == 2
