"""The comparison of a lake with its model: tables, holds, a view, a subscription's output and a durable client."""

from __future__ import annotations

from collections import Counter

import pytest

from lakehold.errors import NotReadable
from lakehold.timeline.table_timeline import Timeline
from tests.whole.model import assert_shows, counted
from tests.whole.world import CAPTURED, OUTPUT, TABLES, UPSERTED, VIEW, World


def check(world: World) -> None:
    """Compare everything that the lake shows with the model."""
    world.learn()
    windows = world.lake.timelines.readable([*TABLES, VIEW])
    for name in TABLES:
        _check_table(world, windows[name])
    _check_holds(world, windows)
    assert world.has_view or VIEW not in windows
    if world.is_refreshed or VIEW in windows:
        _check_view(world, windows[VIEW])
    if world.published_from is not None:
        _check_output(world, world.published_from)
    if world.acknowledged:
        _check_client(world)
    world.counts["checks"] += 1


def _check_table(world: World, window: Timeline) -> None:
    """Compare the changes of a table, from the first readable time on, with the model at each batch."""
    name, past = window.full_name, world.pasts[window.full_name]
    found = world.lake.sql(f"SUBSCRIBE {name} AS OF {window.since_ms}")
    times = past.times(window.since_ms, window.upper_ms)
    assert_shows(found.rows, times, lambda ms: past.bag(ms, found.columns[2:]), name)
    at_ms = world.random.choice(times)
    read = world.lake.sql(f"SELECT * FROM {name} AS OF {at_ms}")
    assert Counter(read.rows) == past.bag(at_ms, read.columns), (name, at_ms)
    for unreadable_ms in (window.since_ms - 1, window.upper_ms):
        with pytest.raises(NotReadable):
            world.lake.sql(f"SUBSCRIBE {name} AS OF {unreadable_ms} UP TO {unreadable_ms + 1}")
    world.counts["times of tables"] += len(times)


def _check_holds(world: World, windows: dict[str, Timeline]) -> None:
    found = {hold.name: hold.at_ms for hold in world.lake.holds.all() if hold.kept_by is None}
    assert found == {name: at_ms for name, (_, at_ms) in world.holds.items()}
    for name, (table, at_ms) in world.holds.items():
        assert windows[table].since_ms <= at_ms, f"hold {name} does not keep {table}"
    world.counts["holds"] += len(found)


def _check_view(world: World, window: Timeline) -> None:
    past = world.pasts[UPSERTED]
    found = world.lake.sql(f"SUBSCRIBE {VIEW} AS OF {window.since_ms}")
    times = past.times(window.since_ms, window.upper_ms)
    assert_shows(found.rows, times, lambda ms: counted(past.bag(ms, ("id", "n"))), VIEW)
    world.counts["times of the view"] += len(times)


def _check_output(world: World, first_ms: int) -> None:
    """Compare the output of a subscription, every timestamp of it, with the model."""
    table, past = world.lake.catalog.load_table(OUTPUT), world.pasts[UPSERTED]
    rows = table.scan().to_arrow().select(["mz_timestamp", "mz_diff", "id", "n"]).to_pylist()
    times = past.times(first_ms, int(table.properties.get("lakehold.position", first_ms)))
    diffs = [tuple(row.values()) for row in rows]
    assert_shows(diffs, times if diffs else [], lambda ms: past.bag(ms, ("id", "n")), OUTPUT)
    world.counts["times of the output"] += len(times)


def _check_client(world: World) -> None:
    """Compare what the durable client acknowledged with the model."""
    past = world.pasts[CAPTURED]
    first_ms, *_, last_ms = world.acknowledged[0][0], *(ms for ms, _ in world.acknowledged)
    columns = sorted({name for _, rows in world.acknowledged for _, row in rows for name in row})
    diffs = [(ms, diff, *(row.get(name) for name in columns)) for ms, rows in world.acknowledged for diff, row in rows]
    times = past.times(first_ms, last_ms + 1)
    assert_shows(diffs, times, lambda ms: past.bag(ms, columns), "the client")
    world.counts["times of the client"] += len(times)
