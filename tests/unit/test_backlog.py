"""The backlog of tables that catch up, from the rows of their readers."""

from __future__ import annotations

import pytest

from lakehold.model.backlog import Backlog, backlog, backlogs
from lakehold.model.offsets import Offsets, TopicPartition
from lakehold.model.readers import BACKFILL_READER, MAIN_READER, ReaderState, TableProgress

P0, P1 = (TopicPartition("orders", number) for number in range(2))
OTHER = TopicPartition("items", 0)


def reader(name: str, position: Offsets, begins: Offsets | None = None, ends: Offsets | None = None) -> ReaderState:
    tables = {"s.t": TableProgress()}
    return ReaderState("shop", name, tables, position, catch_up_from=begins or {}, catch_up_to=ends or {})


@pytest.mark.parametrize(
    ("state", "main", "found"),
    [
        # No fetch has been recorded yet.
        (reader("s.t", {}), {P0: 10}, None),
        # Retention deleted the messages before 4; `main` has advanced since the fetch.
        (reader("s.t", {P0: 6}, {P0: 4}, {P0: 10}), {P0: 12}, Backlog(2, 6)),
        # `main` does not read the topic: the ends of the fetch count.
        (reader("s.t", {P0: 6, P1: 1}, {P0: 4, P1: 0}, {P0: 10, P1: 3}), {}, Backlog(3, 6)),
        # The table was stopped, and `main` advanced.
        (reader("s.t", {P0: 6}), {P0: 12}, Backlog(0, 6)),
        # Other topics and bytes of files do not count; a new partition begins at 0.
        (reader("s.t", {P0: 6, OTHER: 1}, {P0: 4}, {P0: 10}), {P0: 10, P1: 2, OTHER: 9}, Backlog(2, 6)),
        # The topic is shorter than before, which another part reports as an error.
        (reader("s.t", {P0: 6}, {P0: 4}, {P0: 3}), {}, Backlog(2, 0)),
        (reader(MAIN_READER, {P0: 6}), {P0: 6}, None),
    ],
)
def test_a_backlog_counts_read_and_unread_messages(state: ReaderState, main: Offsets, found: Backlog | None) -> None:
    assert backlog(state, reader(MAIN_READER, main), {"orders"}) == found


def test_each_table_of_a_reader_has_its_own() -> None:
    own = ReaderState(
        "shop",
        BACKFILL_READER,
        {"s.t": TableProgress(), "s.u": TableProgress(), "s.dropped": TableProgress()},
        {P0: 5, OTHER: 2},
        catch_up_from={P0: 0, OTHER: 1},
    )
    main = ReaderState("shop", MAIN_READER, {"s.v": TableProgress()}, {P0: 8, OTHER: 2})
    topics = {"s.t": "orders", "s.u": "items", "s.v": "orders"}
    found = backlogs({MAIN_READER: main, BACKFILL_READER: own}, topics)
    assert found == {"s.t": Backlog(5, 3), "s.u": Backlog(1, 0)}
    assert sum(found.values(), Backlog()).total == 9
