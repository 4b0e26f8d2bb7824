"""A batch that a crash left open, of topics that have lost messages meanwhile: only their tables stop, at their old position."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.definitions import Envelope
from lakehold.errors import SourceBusy, TableGone, TableLeftOut, TableStopped, UpstreamError
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.write.repeats import RepeatedSnapshot, Snapshots
from lakehold.model.offsets import TopicPartition, Watermarks
from lakehold.model.readers import BACKFILL_READER, MAIN_READER
from tests.memory_source import MemorySource, Topics

ORDERS = TopicPartition("orders", 0)


def stopped(reports: list[BatchReport]) -> dict[str, str]:
    return {name: error.code for report in reports for name, error in report.stopped.items()}


def killed(**ends: int) -> MemorySource:
    """Return a source at offset 10 of `orders` and `items`, with an open batch up to 20, or up to `ends`."""
    source = MemorySource(Topics(orders=10, items=10), {"orders": "orders", "items": "items"})
    source.drain()
    source.topics.watermarks_of |= dict.fromkeys(("orders", "items"), Watermarks(0, 20))
    source.abandon_batch(MAIN_READER, **{"orders": 20, "items": 20, **ends})
    return source


def test_a_topic_that_one_fetch_misses_is_read_when_it_exists_again() -> None:
    source = killed()
    orders = source.topics.watermarks_of.pop("orders")
    assert stopped(source.drain()) == {"s.orders": "topic-missing"}
    assert source.ranges("items") == [(0, 10), (10, 20)]

    source.topics.watermarks_of["orders"] = orders
    assert stopped(source.drain()) == {}
    assert source.ranges("orders") == [(0, 10), (10, 20)]
    assert source.main().tables.keys() == {"s.orders", "s.items"}


@pytest.mark.parametrize("has_open_batch", [True, False])
def test_topics_that_a_statement_is_deleting_stop_no_table(has_open_batch: bool) -> None:
    source = killed() if has_open_batch else MemorySource(Topics(orders=10, items=10), {"orders": "orders"})
    source.drain()
    del source.topics.watermarks_of["orders"]

    def is_being_dropped() -> None:
        raise SourceBusy('source "shop" is being changed')

    source.confirm_defined = is_being_dropped
    with pytest.raises(SourceBusy):
        source.drain()
    assert "s.orders" in source.main().tables


def test_lost_offsets_stop_their_table_and_the_others_go_on() -> None:
    source = killed()
    source.topics.watermarks_of["orders"] = Watermarks(15, 20)
    assert stopped(source.drain()) == {"s.orders": "offsets-lost"}
    source.topics.watermarks_of["items"] = Watermarks(0, 30)
    assert stopped(source.drain()) == {"s.orders": "offsets-lost"}
    assert source.ranges("items") == [(0, 10), (10, 20), (20, 30)]
    assert source.readers()["s.orders"].position[ORDERS] == 10


def test_a_transaction_topic_that_lost_records_ends_the_ingest_with_a_way_out_for_all_tables() -> None:
    source = MemorySource(Topics(orders=10, transactions=10), {"orders": "orders"}, transaction_topic="transactions")
    source.drain()
    source.topics.watermarks_of["transactions"] = Watermarks(15, 20)
    with pytest.raises(UpstreamError, match="It is the transaction topic") as lost:
        source.drain()
    assert lost.value.code == "offsets-lost"
    assert 'Then drop all tables of source "shop" and create them again' in lost.value.hint
    assert "first have it snapshot its tables again" in lost.value.hint


def test_a_topic_of_the_same_name_is_not_read_for_the_batch() -> None:
    source = killed()
    source.topics.ids["orders"] = "another"
    source.topics.watermarks_of["orders"] = Watermarks(0, 30)
    assert stopped(source.drain()) == {"s.orders": "topic-recreated"}
    assert (source.ranges("orders"), source.ranges("items")) == ([(0, 10)], [(0, 10), (10, 20)])


def test_a_table_that_caught_up_does_not_keep_the_others_from_going_on() -> None:
    source = MemorySource(Topics(orders=10, items=50), {"orders": "orders"})
    source.drain()
    source.tables["items"] = "items"
    source.batch_records = 10
    filling = source.ingesting().drain()
    assert next(filling).reader == BACKFILL_READER
    filling.close()
    source.abandon_batch(BACKFILL_READER, items=20)
    source.topics.watermarks_of |= {"items": Watermarks(15, 50), "orders": Watermarks(0, 20)}
    assert stopped(source.drain()) == {"s.items": "offsets-lost"}
    assert source.ranges("orders") == [(0, 10), (10, 20)]


def test_a_table_that_stops_is_reported_once() -> None:
    source = MemorySource(Topics(orders=10, items=10), {"orders": "orders", "items": "items"})
    source.drain()
    del source.topics.watermarks_of["orders"]
    assert [[*report.stopped] for report in source.drain() if report.stopped] == [["s.orders"]]
    killed_one = killed()
    del killed_one.topics.watermarks_of["orders"]
    assert [[*report.stopped] for report in killed_one.drain() if report.stopped] == [["s.orders"]]


def test_a_stop_loses_no_time_that_the_batch_has_taken() -> None:
    source = killed()
    open_intent = source.main().intent
    assert open_intent is not None
    source.topics.watermarks_of.clear()
    source.drain()
    assert {name: state.intent for name, state in source.readers().items()} == {
        MAIN_READER: None,
        "s.orders": None,
        "s.items": None,
    }
    for name in ("s.orders", "s.items"):
        state = source.readers()[name]
        assert (state.upper_ms or 0) > open_intent.mz_timestamp
        assert (state.upper_of(name) or 0) <= open_intent.mz_timestamp, "the rows of the batch are not readable"


@pytest.mark.parametrize("error", [TableLeftOut, TableGone])
def test_a_table_that_is_not_captured_is_stopped_until_its_next_snapshot_is_complete(error: type[TableStopped]) -> None:
    source = MemorySource(Topics(orders=10, items=10), {"orders": "orders", "items": "items"})
    source.drain()
    upper_ms, out = source.main().upper_ms, error("not captured", table="s.orders")
    source.topics.watermarks_of |= dict.fromkeys(("orders", "items"), Watermarks(0, 20))
    source.snapshots = Snapshots(stops={"id of orders": out})
    for end in (20, 30):
        source.topics.watermarks_of["items"] = Watermarks(0, end)
        assert stopped(source.drain()) == {"s.orders": error.default_code}
        assert source.readers()["s.orders"].upper_of("s.orders") == upper_ms
    assert source.ranges("items") == [(0, 10), (10, 20), (20, 30)]

    for unsure in (Snapshots(), Snapshots(awaited=frozenset({"id of orders"}), stops={})):
        source.snapshots = unsure
        source.drain()
        assert source.ranges("orders") == [(0, 10)], "the connector was not inspected, or has not sent the snapshot"

    source.snapshots = Snapshots(stops={})
    source.drain()
    assert source.ranges("orders") == [(0, 10), (10, 20)]
    assert source.main().tables.keys() == {"s.orders", "s.items"}


def test_a_table_that_exists_again_joins_the_others_after_the_snapshot_that_removes_its_old_rows() -> None:
    orders = "id of orders"
    source = MemorySource(
        Topics(orders=10, items=10), {"orders": "orders", "items": "items"}, envelope=Envelope.DEBEZIUM
    )
    source.snapshots = complete = Snapshots(are_reported=True, stops={})
    source.drain()
    source.snapshots = replace(complete, stops={orders: TableGone("gone", table="s.orders")})
    source.drain()
    upper_ms = source.readers()["s.orders"].upper_of("s.orders")

    waits = TableGone("waits", table="s.orders")
    source.snapshots = replace(complete, returned={orders: waits, "id of items": waits})
    assert stopped(source.drain()) == {"s.orders": "table-gone"}, "the other table did not stop, and needs no snapshot"
    error = source.readers()["s.orders"].error
    assert error is not None
    assert error.message == "waits"

    source.topics.watermarks_of["orders"] = Watermarks(0, 20)
    first = RepeatedSnapshot("first", 1, {ORDERS: 20})
    source.snapshots = replace(complete, repeated={orders: first}, repairs={orders: None})
    source.drain()
    assert source.ranges("orders") == [(0, 10), (10, 20)], "rows of the first snapshot are read"
    assert source.readers()["s.orders"].upper_of("s.orders") == upper_ms, "not readable: old rows may be left"

    # The second snapshot has no rows: the table was created again empty.
    second = replace(first, signal_id="second")
    source.snapshots = replace(complete, repeated={orders: second}, repairs={orders: "second"})
    source.drain()
    assert source.main().tables.keys() == {"s.orders", "s.items"}
    assert source.removed == ["first", "second"]


@pytest.mark.parametrize(
    "fault", [None, Watermarks(15, 20), Watermarks(0, 5)], ids=["missing", "offsets lost", "made again"]
)
def test_the_transaction_topic_is_not_needed_for_a_batch_that_ends_at_its_boundary(fault: Watermarks | None) -> None:
    """Recover a batch that ended at a transaction boundary, after its transaction topic was lost."""
    source = MemorySource(Topics(orders=10, tx=10), {"orders": "orders"}, transaction_topic="tx")
    source.drain()
    source.topics.watermarks_of |= {"orders": Watermarks(0, 30), "tx": Watermarks(0, 20)}
    source.abandon_batch(MAIN_READER, orders=20, tx=20)
    earlier = source.topics.watermarks_of.pop("tx")
    if fault is not None:
        source.topics.watermarks_of["tx"] = fault
    if fault == Watermarks(15, 20):
        source.drain()
        assert source.ranges("orders") == [(0, 10), (10, 20), (20, 30)], "the killed batch had read all ENDs"
        return
    for _ in range(2):
        with pytest.raises(UpstreamError):
            source.drain()
        assert source.ranges("orders") == [(0, 10), (10, 20)]
    source.topics.watermarks_of["tx"] = earlier
    source.drain()
    assert source.ranges("orders") == [(0, 10), (10, 20), (20, 30)]
