"""Tables that catch up for long, and the progress of other tables and of new ones meanwhile."""

from __future__ import annotations

import pytest

from lakehold.ingest import source_ingest
from lakehold.model.offsets import Watermarks
from lakehold.model.readers import BACKFILL_READER, MAIN_READER
from lakehold.times import now_ms
from tests.memory_source import MemorySource, Topics


@pytest.fixture
def source() -> MemorySource:
    """Return a source whose `s.orders` is in sync, and whose `s.items` has ten batches to read."""
    source = MemorySource(Topics(orders=10, items=100), {"orders": "orders"}, batch_records=10)
    source.drain()
    source.tables["items"] = "items"
    return source


def test_the_write_frontier_of_a_quiet_table_moves(source: MemorySource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_ingest, "now_ms", lambda: now_ms() + 20_000)
    at = [source.main().upper_ms]
    for report in source.ingesting().drain():
        if report.reader == BACKFILL_READER:
            at.append(source.main().upper_ms)
    assert len(set(at)) == len(at) > 10


@pytest.mark.parametrize("messages", [60, 200])
def test_a_topic_that_is_created_again_while_its_table_catches_up_stops_the_table(
    source: MemorySource, messages: int
) -> None:
    source.turn_s = 0
    source.drain()
    assert source.ranges("items") == [(0, 10)]
    source.topics.ids["items"] = "another"
    source.topics.watermarks_of["items"] = Watermarks(0, messages)
    source.turn_s = None
    stopped = {name: error.code for report in source.drain() for name, error in report.stopped.items()}
    assert stopped == {"s.items": "topic-recreated"}
    assert source.ranges("items") == [(0, 10)]


def test_idle_tables_get_empty_batches_no_more_often_than_in_a_follow(source: MemorySource) -> None:
    reports = source.drain()
    assert [report.reader for report in reports[:10]] == [BACKFILL_READER] * 10


def test_tables_that_come_together_while_others_catch_up_are_read_together(source: MemorySource) -> None:
    source.turn_s = 0
    source.drain()
    source.topics.watermarks_of["rates"] = Watermarks(0, 30)
    source.tables |= {"one": "rates", "two": "rates"}
    source.drain()
    source.tables |= {"three": "rates", "four": "rates"}
    source.drain()
    assert {name: {*state.tables} for name, state in source.readers().items()} == {
        MAIN_READER: {"s.orders"},
        BACKFILL_READER: {"s.items"},
        f"{BACKFILL_READER}_2": {"s.one", "s.two"},
        f"{BACKFILL_READER}_3": {"s.three", "s.four"},
    }
    source.turn_s = None
    source.drain()
    assert source.readers().keys() == {MAIN_READER}
    assert source.ranges("one") == source.ranges("four") == [(0, 10), (10, 20), (20, 30)]


def test_a_call_with_little_time_leaves_the_rest_to_the_next_call_and_adds_new_tables(
    source: MemorySource,
) -> None:
    source.turn_s = 0
    assert [report.reader for report in source.drain()] == [BACKFILL_READER, MAIN_READER]
    source.tables["more"] = "orders"
    source.drain()
    assert source.main().tables.keys() == {"s.orders", "s.more"}
    for _ in range(8):
        source.drain()
    assert source.readers().keys() == {MAIN_READER}
    assert source.ranges("items") == [(at, at + 10) for at in range(0, 100, 10)]
