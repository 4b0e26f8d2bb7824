"""Whole transactions from a real broker, where one partition may show later messages than another one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from lakehold.errors import NotReadable, UpstreamError
from lakehold.lake import Lake
from lakehold.model.readers import MAIN_READER
from lakehold.status import COLUMNS, status_of
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.kafka_broker import Broker
from tests.kafka_transactions import KafkaConnector
from tests.stopped_tables import make_foreign, make_own
from tests.transaction_files import TRANSACTION_TOPIC, define_table, states

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_TIMEOUT_S = 30.0
_LAG_MS = 60_000

TABLES = ("a", "b")
BEFORE, AFTER = ({("public.a", 1): v, ("public.b", 1): v} for v in (10, 20))


@contextmanager
def shop(make_lake: LakeFactory, broker: Broker, **settings: int) -> Generator[tuple[Lake, KafkaConnector], None, None]:
    """Define a source whose two tables hold `BEFORE`."""
    broker.create_topic(name=TRANSACTION_TOPIC)
    topics = [broker.create_topic(name=f"shop.public.{table}") for table in TABLES]
    # Without a timeout, a transaction that is announced and does not arrive is an error at once.
    lake, connector = make_lake(**{"transaction_timeout_ms": 0, **settings}), KafkaConnector(broker)
    lake.sql(
        f"CREATE CONNECTION kafka TO KAFKA (BROKER '{broker.address}');"
        f"CREATE SOURCE shop FROM KAFKA CONNECTION kafka (TOPICS ({', '.join(map(repr, topics))})) FORMAT JSON "
        f"TRANSACTION METADATA TOPIC '{TRANSACTION_TOPIC}'"
    )
    for table in TABLES:
        define_table(lake, table, "DEBEZIUM UPSERT")
    connector.transaction(("a", 1, 10), ("b", 1, 10))
    lake.ingest("shop")
    try:
        yield lake, connector
    finally:
        for topic in (TRANSACTION_TOPIC, *topics):
            broker.delete_topic(topic)


def ingest_when_committed(lake: Lake, broker: Broker, uncommitted: Producer, *partitions: tuple[str, int]) -> None:
    """Ingest before and after a commit to Kafka: without it nothing is awaited, and the tables are unchanged."""
    assert not any(report.waiting for report in lake.ingest("shop"))
    uncommitted.commit_transaction(_TIMEOUT_S)
    for topic, partition in partitions:
        broker.wait_until_stable(topic, partition)
    lake.ingest("shop")
    seen = list(states(lake, TABLES))
    assert all(state in (BEFORE, AFTER) for state in seen), seen
    assert seen[-1] == AFTER


def test_changes_sent_before_a_restart_are_not_counted_for_uncommitted_ones(
    make_lake: LakeFactory, broker: Broker
) -> None:
    with shop(make_lake, broker) as (lake, connector):
        connector.transaction(("a", 1, 20), ("b", 1, 15), end=False)
        connector.begin()
        plain = connector.producer
        connector.producer = broker.begin_transaction("shop.public.b", [])
        connector.event("b", 1, 20, order=1, collection_order=1)
        uncommitted = connector.producer
        connector.producer = plain
        connector.end({"public.b": 1})
        ingest_when_committed(lake, broker, uncommitted, ("shop.public.b", 0))


def ingest_instead_of_waiting(lake: Lake, meanwhile: Callable[[], None] = lambda: None) -> list[float]:
    """Ingest, and call `meanwhile` instead of waiting; return the seconds of each wait."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        meanwhile()

    with lake._parts.ingesting.leased("shop") as ingesting:
        assert not any(report.waiting for report in replace(ingesting, pause=pause).drain())
    return pauses


def test_a_transaction_partly_sent_before_a_restart_waits_for_its_rest(make_lake: LakeFactory, broker: Broker) -> None:
    with shop(make_lake, broker, transaction_lag_ms=_LAG_MS) as (lake, connector):
        connector.sent_ms = now_ms()
        connector.transaction(("a", 1, 20), ("b", 1, 15), end=False)
        connector.begin()
        connector.lags = True
        connector.event("b", 1, 20, order=1, collection_order=1)
        connector.lags = False
        connector.end({"public.b": 1})
        assert len(ingest_instead_of_waiting(lake, connector.arrive)) == 1
        connector.transaction(("a", 1, 20), ("b", 1, 20))
        assert ingest_instead_of_waiting(lake) == []
        seen = list(states(lake, TABLES))
        assert all(state in (BEFORE, AFTER) for state in seen), seen
        assert seen[-1] == AFTER


@pytest.mark.parametrize(
    "limits",
    [{}, pytest.param({"driver_read_max_records": 0}, marks=pytest.mark.soak)],
    ids=["in the driver", "by Spark"],
)
def test_topics_with_only_uncommitted_messages_block_nothing(
    make_lake: LakeFactory, broker: Broker, limits: dict[str, int]
) -> None:
    with shop(make_lake, broker, **limits) as (lake, connector):
        for topic in ("shop.public.b", TRANSACTION_TOPIC):
            broker.transaction(topic, [b"never committed"], commit=False)
        lake.ingest("shop")
        assert list(states(lake, TABLES))[-1] == BEFORE
        broker.transaction("shop.public.b", [b"never committed"], commit=False)
        connector.transaction(("a", 1, 20))
        lake.ingest("shop")
        assert list(states(lake, TABLES))[-1] == {**AFTER, ("public.b", 1): 10}
        connector.transaction(("b", 1, 20))
        lake.ingest("shop")
        assert list(states(lake, TABLES))[-1] == AFTER


def test_an_ingest_ends_with_the_messages_that_existed_when_it_was_called(
    make_lake: LakeFactory, broker: Broker
) -> None:
    with shop(make_lake, broker, transaction_lag_ms=500) as (lake, connector):
        connector.sent_ms = now_ms()
        connector.transaction(("a", 1, 20), ("b", 1, 15), end=False)
        connector.begin()
        connector.event("b", 1, 20, order=1, collection_order=1)
        connector.end({"public.b": 1})
        lake.ingest("shop")
        assert list(states(lake, TABLES))[-1] == AFTER


def test_a_transaction_topic_of_several_partitions_is_refused(make_lake: LakeFactory, broker: Broker) -> None:
    with shop(make_lake, broker) as (lake, connector):
        broker.add_partitions(TRANSACTION_TOPIC, 2)
        connector.transaction(("a", 1, 20), ("b", 1, 20))
        with pytest.raises(UpstreamError) as refused:
            lake.ingest("shop")
        assert refused.value.code == "transaction-partitions"
        assert "Expected 1 partition, found 2" in refused.value.detail
        assert "--partitions 1" in refused.value.hint
        stopped_by = {row[COLUMNS.index("stopped_by")] for row in status_of(lake).rows}
        assert stopped_by == {f"transaction-partitions: {refused.value.message}"}
        assert list(states(lake, TABLES)) == [BEFORE]


def test_a_transaction_larger_than_a_batch_is_not_late_while_more_of_it_arrives(
    make_lake: LakeFactory, broker: Broker
) -> None:
    limits = {"max_batch_records": 10, "transaction_timeout_ms": 3_600_000}
    with shop(make_lake, broker, **limits) as (lake, connector):

        def waits_since_ms() -> int:
            waiting = lake.ingest("shop")[-1].waiting
            assert waiting is not None
            assert waiting.transaction.startswith("702:")
            return waiting.since_ms

        connector.transaction(*(("a", key, 20) for key in range(1, 51)), end=False)
        since_ms = waits_since_ms()
        assert waits_since_ms() == since_ms
        for order in range(51, 101):
            connector.event("a", order, 20, order, order)
        later_ms = waits_since_ms()
        assert later_ms > since_ms

        for v in range(30):
            connector.transaction(("b", 1, v))
        assert waits_since_ms() == later_ms, "only changes of other transactions arrived"


# --- tables that catch up while transactions arrive -------------------------------------------------------------------


def stop_and_recover(lake: Lake, connector: KafkaConnector) -> None:
    """Stop `b` while `a` applies transactions, and recover it."""
    make_foreign(lake, "shop.b")
    for v in range(11, 16):
        connector.transaction(("a", 1, v), ("b", 1, v))
    assert [name for report in lake.ingest("shop") for name in report.stopped] == ["shop.b"]
    make_own(lake, "shop.b")


def create_again(lake: Lake, connector: KafkaConnector) -> None:
    for v in range(11, 16):
        connector.transaction(("a", 1, v), ("b", 1, v))
    lake.ingest("shop")
    lake.sql("DROP TABLE shop.b")
    define_table(lake, "b", "DEBEZIUM UPSERT")


@pytest.mark.parametrize("falls_behind", [stop_and_recover, pytest.param(create_again, marks=pytest.mark.soak)])
def test_a_table_joins_at_a_commit_while_transactions_arrive(
    make_lake: LakeFactory, broker: Broker, falls_behind: Callable[[Lake, KafkaConnector], None]
) -> None:
    with shop(make_lake, broker, max_batch_records=3) as (lake, connector):
        falls_behind(lake, connector)
        v = 20
        for report in lake.batches_of("shop"):
            if report.reader != MAIN_READER:
                v += 1
                assert v < 40, "the table joins although changes keep arriving"
                connector.transaction(("a", 1, v), ("b", 1, v))
        assert set(lake.batches.readers("shop")) == {MAIN_READER}
        shown: list[int] = []
        for batch in lake.batches.history("shop"):
            with suppress(NotReadable):
                (of_a,), (of_b,) = (
                    lake.sql(f"SELECT v FROM shop.{table} AS OF {batch.mz_timestamp}").rows for table in "ab"
                )
                assert of_a == of_b
                shown.append(*of_a)
        assert shown[-1] == v
        assert 20 < shown[-2] < v, "the table is in sync and readable as soon as it has joined"
