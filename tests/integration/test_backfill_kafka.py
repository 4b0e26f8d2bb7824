"""Tables that catch up with topics of a broker: their progress, and topics that are created again with their tables."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from lakehold.lake import Lake
from lakehold.model.readers import BACKFILL_READER, MAIN_READER
from lakehold.overview.table_status import TableStatus, table_statuses
from tests.conftest import LakeFactory
from tests.kafka_broker import Broker

pytestmark = [pytest.mark.stack, pytest.mark.spark]

BATCH = 10


class Topics:
    """A source over topics of two partitions, whose keys are numbered."""

    def __init__(self, lake: Lake, broker: Broker) -> None:
        self.lake, self.broker = lake, broker
        self.orders, self.items = (broker.create_topic(partitions=2) for _ in range(2))
        lake.sql(f"""
            CREATE CONNECTION kafka TO KAFKA (BROKER '{broker.address}');
            CREATE SOURCE shop FROM KAFKA CONNECTION kafka (TOPICS ('{self.orders}', '{self.items}')) FORMAT JSON
        """)

    def table(self, name: str, topic: str) -> None:
        self.lake.sql(f"CREATE TABLE s.{name} (k BIGINT, v STRING) FROM SOURCE shop (TOPIC '{topic}') ENVELOPE UPSERT")

    def write(self, topic: str, *keys: int) -> None:
        producer = Producer({"bootstrap.servers": self.broker.address})
        for key in keys:
            producer.produce(topic, b'{"v": "%d"}' % key, b'{"k": %d}' % key, partition=key % 2)
        assert producer.flush(60) == 0

    def status(self, name: str) -> TableStatus:
        found = table_statuses(self.lake.definitions.definitions(), self.lake.batches.all_readers())
        return next(status for status in found if status.full_name == f"s.{name}")

    def come(self, name: str) -> tuple[int, int]:
        backlog = self.status(name).backlog
        assert backlog is not None
        return backlog.read, backlog.behind

    def keys(self, name: str) -> list[int]:
        return [key for (key,) in self.lake.sql(f"SELECT k FROM s.{name} ORDER BY k").rows]

    def one_batch(self) -> None:
        """Ingest until the tables that catch up had one batch."""
        ingesting = self.lake.batches_of("shop")
        while next(ingesting).reader != BACKFILL_READER:
            pass
        ingesting.close()


@pytest.fixture
def topics(make_lake: LakeFactory, broker: Broker) -> Topics:
    """Fill `s.first` from one topic; of the other topic the first records are deleted."""
    found = Topics(make_lake(max_batch_records=BATCH), broker)
    found.table("first", found.orders)
    found.write(found.orders, *range(20))
    found.write(found.items, *range(60))
    for partition in range(2):
        broker.delete_records(found.items, partition, 10)
    found.lake.ingest("shop")
    return found


def test_progress_counts_the_messages_in_the_topics(topics: Topics) -> None:
    topics.table("again", topics.orders)
    topics.table("items", topics.items)
    topics.one_batch()
    of_again, of_items = topics.come("again"), topics.come("items")
    assert (sum(of_again), sum(of_items), of_again[0] + of_items[0]) == (20, 40, BATCH)
    # The counts include messages that `main` reads meanwhile; other topics' new messages are seen by the next ingest.
    topics.write(topics.orders, 20)
    topics.write(topics.items, 60)
    topics.one_batch()
    assert (sum(topics.come("again")), sum(topics.come("items"))) == (21, 41)
    assert topics.come("again")[0] + topics.come("items")[0] == 2 * BATCH
    (again, items) = topics.lake.backfill(["s.again", "s.items"])
    assert (again.is_there, items.is_there) == (True, True)
    assert (topics.keys("again"), topics.keys("items")) == ([*range(21)], [*range(20, 61)])
    assert topics.status("items").backlog is None


def test_a_topic_is_created_again_with_its_table_while_it_catches_up(topics: Topics) -> None:
    topics.table("again", topics.orders)
    topics.table("items", topics.items)
    topics.one_batch()
    topics.lake.sql("DROP TABLE s.items")
    topics.broker.delete_topic(topics.items)
    topics.broker.create_topic(partitions=2, name=topics.items)
    topics.write(topics.items, 100, 101, 102)
    topics.table("items", topics.items)
    assert [report.stopped for report in topics.lake.ingest("shop") if report.stopped] == []
    assert set(topics.lake.batches.readers("shop")) == {MAIN_READER}
    assert (topics.keys("first"), topics.keys("again"), topics.keys("items")) == (
        [*range(20)],
        [*range(20)],
        [100, 101, 102],
    )
    topics.write(topics.items, 103)
    topics.lake.ingest("shop")
    assert topics.keys("items") == [100, 101, 102, 103]


def test_a_topic_is_created_again_with_its_only_table(topics: Topics) -> None:
    topics.table("items", topics.items)
    topics.lake.ingest("shop")
    topics.lake.sql("DROP TABLE s.items")
    topics.broker.delete_topic(topics.items)
    topics.broker.create_topic(partitions=2, name=topics.items)
    topics.write(topics.items, 100)
    topics.table("items", topics.items)
    (report,) = topics.lake.backfill(["s.items"])
    assert (report.is_there, report.error, topics.keys("items")) == (True, None, [100])
