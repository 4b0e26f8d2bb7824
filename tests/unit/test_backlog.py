"""How far tables that are behind have come, as the rows of their readers tell."""

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
        # Nobody has looked yet.
        (reader("s.t", {}), {P0: 10}, None),
        # Retention has taken what was before 4; `main` has gone on since it was looked.
        (reader("s.t", {P0: 6}, {P0: 4}, {P0: 10}), {P0: 12}, Backlog(2, 6)),
        # `main` does not read the topic: what there was.
        (reader("s.t", {P0: 6, P1: 1}, {P0: 4, P1: 0}, {P0: 10, P1: 3}), {}, Backlog(3, 6)),
        # It was stopped, and `main` went on.
        (reader("s.t", {P0: 6}), {P0: 12}, Backlog(0, 6)),
        # Other topics and bytes of files do not count; a partition that is new begins at 0.
        (reader("s.t", {P0: 6, OTHER: 1}, {P0: 4}, {P0: 10}), {P0: 10, P1: 2, OTHER: 9}, Backlog(2, 6)),
        # The topic is shorter than it was: it is an error elsewhere.
        (reader("s.t", {P0: 6}, {P0: 4}, {P0: 3}), {}, Backlog(2, 0)),
        (reader(MAIN_READER, {P0: 6}), {P0: 6}, None),
    ],
)
def test_what_is_read_and_what_is_left(state: ReaderState, main: Offsets, found: Backlog | None) -> None:
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
