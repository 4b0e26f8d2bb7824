"""Upstream servers and topics disappear, lose records or are replaced: an error says so, lakehold writes nothing wrong, and
the hint of the error solves the problem."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from lakehold import stack as lakehold_stack
from lakehold.errors import LakeholdError, UpstreamUnavailable
from lakehold.ingest.batch_report import BatchReport
from lakehold.lake import Lake
from tests.conftest import LakeFactory
from tests.kafka_broker import Broker
from tests.live_source import LiveSource
from tests.stack_fixtures import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_TIMEOUT_MS = 3_000


class Topics:
    """The source `live` over topics of JSON without a schema, each of which feeds a table `live.<name>`."""

    def __init__(self, lake: Lake, broker: Broker, *names: str) -> None:
        self.lake = lake
        self._broker = broker
        self.names = {name: broker.create_topic() for name in names}
        topics = ", ".join(f"'{topic}'" for topic in self.names.values())
        lake.sql(
            f"CREATE CONNECTION kafka TO KAFKA (BROKER '{broker.address}');"
            f"CREATE SOURCE live FROM KAFKA CONNECTION kafka (TOPICS ({topics})) FORMAT JSON"
        )
        for name in names:
            self.create_table(name)

    def create_table(self, name: str) -> None:
        self.lake.sql(
            f"CREATE TABLE live.{name} (id BIGINT) FROM SOURCE live (TOPIC '{self.names[name]}') ENVELOPE UPSERT"
        )

    def produce(self, name: str, ids: Iterable[int]) -> None:
        producer = Producer({"bootstrap.servers": self._broker.address})
        for number in ids:
            row = json.dumps({"id": number})
            producer.produce(self.names[name], row, key=row)
        assert producer.flush(_TIMEOUT_MS / 1000) == 0

    def ids(self, name: str) -> list[int]:
        rows = self.lake.sql(f"SELECT id FROM {self.lake.settings.catalog_name}.live.{name}").rows
        return sorted(number for (number,) in rows)

    def ingest(self) -> list[BatchReport]:
        return self.lake.ingest("live")

    def stopped(self) -> dict[str, LakeholdError]:
        """Ingest; return the tables that stopped."""
        return {name: error for report in self.ingest() for name, error in report.stopped.items()}

    def reload(self, name: str) -> None:
        """Drop a table and create it again, as the hint says."""
        self.lake.sql(f"DROP TABLE live.{name}")
        self.create_table(name)


@pytest.fixture
def topics(make_lake: LakeFactory, broker: Broker) -> Topics:
    """Define two tables with rows 1 to 3."""
    topics = Topics(make_lake(upstream_timeout_ms=_TIMEOUT_MS), broker, "one", "other")
    for name in topics.names:
        topics.produce(name, [1, 2, 3])
    assert not topics.stopped()
    return topics


def test_an_unavailable_broker_is_named_and_nothing_is_lost(topics: Topics, broker: Broker) -> None:
    topics.produce("one", [4])
    broker.stop()
    with pytest.raises(UpstreamUnavailable) as failure:
        topics.ingest()
    assert broker.address in failure.value.message
    assert "Check that the broker runs" in failure.value.hint
    assert topics.ids("one") == [1, 2, 3], "ingested rows stay readable"

    broker.start()
    assert not topics.stopped()
    assert (topics.ids("one"), topics.ids("other")) == ([1, 2, 3, 4], [1, 2, 3])


def test_a_topic_deleted_and_created_again_stops_its_table_only(topics: Topics, broker: Broker) -> None:
    topics.produce("other", [4])
    broker.delete_topic(topics.names["one"])
    stopped = topics.stopped()
    assert stopped["live.one"].code == "topic-missing"
    assert topics.names["one"] in stopped["live.one"].message

    broker.create_topic(name=topics.names["one"])
    topics.produce("one", [7, 8, 9, 10])
    topics.produce("other", [5])
    stopped = topics.stopped()
    assert stopped.keys() == {"live.one"}
    assert "was deleted and created again" in stopped["live.one"].message
    assert "drop the tables of this topic and create them again" in stopped["live.one"].hint
    assert (topics.ids("one"), topics.ids("other")) == ([1, 2, 3], [1, 2, 3, 4, 5])

    topics.reload("one")
    assert not topics.stopped()
    topics.produce("one", [11])
    assert not topics.stopped()
    assert (topics.ids("one"), topics.ids("other")) == ([7, 8, 9, 10, 11], [1, 2, 3, 4, 5])


def test_a_broker_that_lost_its_newest_records_stops_their_table_only(topics: Topics, broker: Broker) -> None:
    def write() -> None:
        topics.produce("one", [4, 5])
        assert not topics.stopped()

    broker.lose_after(topics.names["one"], write)
    topics.produce("one", [6])
    topics.produce("other", [4])
    stopped = topics.stopped()
    assert {name: error.code for name, error in stopped.items()} == {"live.one": "topic-recreated"}
    assert "The offsets of partition 0 below 5 were read before, but it now ends at 4." in stopped["live.one"].detail
    assert (topics.ids("one"), topics.ids("other")) == ([1, 2, 3, 4, 5], [1, 2, 3, 4])

    topics.reload("one")
    assert not topics.stopped()
    assert topics.ids("one") == [1, 2, 3, 6], "as Kafka has it now"


def test_records_deleted_before_they_were_read_stop_their_table_only(topics: Topics, broker: Broker) -> None:
    for name in topics.names:
        topics.produce(name, [4, 5, 6])
    broker.delete_records(topics.names["one"], partition=0, before=4)
    stopped = topics.stopped()
    assert stopped.keys() == {"live.one"}
    assert stopped["live.one"].code == "offsets-lost"
    assert "offsets 3 to 3 are gone" in stopped["live.one"].detail
    assert (topics.ids("one"), topics.ids("other")) == ([1, 2, 3], [1, 2, 3, 4, 5, 6])
    assert topics.stopped().keys() == {"live.one"}, "the table stays stopped"

    topics.reload("one")
    assert not topics.stopped()
    assert (topics.ids("one"), topics.ids("other")) == ([5, 6], [1, 2, 3, 4, 5, 6])


def test_an_unavailable_registry_is_named_and_nothing_is_written(
    make_lake: LakeFactory, database: SourceDatabase, stack_directory: Path
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    lake = make_lake(upstream_timeout_ms=_TIMEOUT_MS)
    source = LiveSource(lake, database, "orders")
    source.table("orders", "orders", "DEBEZIUM")
    source.wait_for_arrival()
    (pid,) = (part.pid for part in lakehold_stack.status(stack_directory) if part.name == "registry")
    registry = psutil.Process(pid)
    registry.kill()
    registry.wait()
    try:
        with pytest.raises(UpstreamUnavailable) as failure:
            source.ingest()
        assert database.addresses.registry in failure.value.message
        assert "Check that it runs" in failure.value.hint
        assert not lake.tables.table_state("live.orders")
        (main,) = lake.batches.readers("live").values()
        assert (main.position, main.upper_ms) == ({}, None)
    finally:
        lakehold_stack.up(stack_directory)

    source.ingest()
    assert source.rows("orders") == [(1,)]
