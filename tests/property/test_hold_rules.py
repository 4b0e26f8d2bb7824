"""Holds against a model whose tables lose everything that neither retention nor a hold keeps: no hold promises lost times."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehold.errors import DefinitionError, NotReadable
from lakehold.holds import rules
from lakehold.holds.rules import (
    HeldWindow,
    HeldWindows,
    advanced,
    begin_waiting,
    created,
    dropped,
    forced,
    free_name,
    renamed,
)
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.run.hold_change import HoldChange
from lakehold.state.holds import Check, HeldTable, Hold, Holds
from lakehold.state.objects import DefinitionStore
from lakehold.state.store import MemoryState
from lakehold.timeline.reader_lag import Changes
from tests.unread import no_roles

TABLES = ("s.a", "s.b", "s.c")
NAMES = ("g", "h", "i")
times = st.integers(0, 60)
names = st.sampled_from(NAMES)


@dataclass
class World:
    """Tables with their readable times, and the holds on them."""

    since: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 10))
    upper: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 20))
    changes: dict[str, tuple[int, ...]] = field(default_factory=lambda: dict.fromkeys(TABLES, (10, 19)))
    retention: int = 8
    holds: Holds = ()

    def retained(self, table: str) -> int:
        return max(self.since[table], self.upper[table] - 1 - self.retention)

    def expire(self, table: str) -> None:
        """Expire everything that neither retention nor a hold keeps."""
        held = [hold.at_ms for hold in self.holds if hold.is_on(table) and hold.at_ms is not None]
        self.since[table] = max(self.since[table], min([self.retained(table), *held]))

    @property
    def windows(self) -> HeldWindows:
        return {
            name: HeldWindow(
                HeldTable(name, name), since_ms, self.upper[name], self.retained(name), Changes(self.changes[name])
            )
            for name, since_ms in self.since.items()
        }

    def named(self, name: str) -> Hold | None:
        return next((hold for hold in self.holds if hold.name == name), None)


def hold(name: str, tables: tuple[str, ...], at_ms: int | None = None, max_lag_ms: int = 25) -> Hold:
    held = tuple(HeldTable(table, table) for table in tables)
    return Hold(f"id of {name}", "s", name, at_ms, held, max_lag_ms, Check.OFF, "", 0)


changes_of_names = st.one_of(
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("drop"), names),
)
steps = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(TABLES), st.integers(1, 20)),
    st.tuples(st.just("idle"), st.sampled_from(TABLES), st.integers(1, 20)),
    st.tuples(st.just("expire"), st.sampled_from(TABLES)),
    st.tuples(st.just("create"), names, st.sets(st.sampled_from(TABLES), min_size=1), st.none() | times),
    st.tuples(st.just("advance"), names, st.none() | times),
    changes_of_names,
    st.tuples(st.just("together"), st.lists(changes_of_names, min_size=1, max_size=4)),
    st.tuples(st.just("force")),
)


def allowed(world: World, step: tuple[object, ...]) -> bool:
    """Return whether the specification allows a step."""
    match step:
        case "create", str(name), set(tables), at:
            readable = at is None or (isinstance(at, int) and all(at >= world.since[str(t)] for t in tables))
            return world.named(name) is None and readable
        case "advance", str(name), to:
            found = world.named(name)
            if found is None or not isinstance(to, int):
                return found is not None
            lowest = {
                table.full_name: min(
                    [h.at_ms for h in world.holds if h.is_on(table.full_name) and h.at_ms is not None]
                    + [world.retained(table.full_name)]
                )
                for table in found.tables
            }
            assert found.at_ms is not None
            is_back = to < found.at_ms
            return not is_back or all(to >= low and to >= world.since[table] for table, low in lowest.items())
        case "rename" | "drop" as verb, *of:
            return allowed(world, ("together", [(verb, *of)]))
        case "together", list(changes):
            return name_changes([hold.name for hold in world.holds], changes) is not None
        case _:
            return True


def name_changes(before: list[str], changes: list[tuple[str, ...]]) -> list[str | None] | None:
    """Return the later name of each hold in `before`, None for a dropped one; or None if a change is impossible."""
    after: list[str | None] = [*before]
    for verb, name, *new in changes:
        if name not in after or (new and new != [name] and new[0] in after):
            return None
        after[after.index(name)] = new[0] if verb == "rename" else None
    return after


def take(world: World, step: tuple[object, ...]) -> None:
    match step:
        case "write", str(table), int(later):
            world.upper[table] += later
            world.changes[table] += (world.upper[table] - 1,)
        case "idle", str(table), int(later):
            world.upper[table] += later
        case "expire", str(table):
            world.expire(table)
        case "create", str(name), set(tables), at:
            new = hold(name, tuple(sorted(map(str, tables))), at if isinstance(at, int) else None)
            world.holds = created(world.holds, new, world.windows)
        case "advance", str(name), to:
            world.holds = advanced(world.holds, name, to if isinstance(to, int) else None, world.windows)
        case "rename", str(name), str(new):
            world.holds = renamed(world.holds, name, new)
        case "drop", str(name):
            world.holds = dropped(world.holds, name)
        case "together", list(changes):
            world.holds = together(world.holds, changes)
        case _:
            world.holds = forced(world.holds, world.windows)


def together(holds: Holds, changes: list[tuple[str, ...]]) -> Holds:
    """Apply a transaction of `changes` to the holds."""
    texts = {"rename": "ALTER HOLD {} RENAME TO {}", "drop": "DROP HOLD {}"}
    script = parse_script("; ".join(texts[verb].format(*named) for verb, *named in changes))
    return HoldChange(script, DefinitionStore(MemoryState()), no_roles().guard).apply(holds)


@given(st.lists(steps, max_size=25))
def test_a_hold_is_readable_whatever_happens_and_only_forbidden_steps_are_refused(
    script: list[tuple[object, ...]],
) -> None:
    world = World()
    for step in script:
        before = world.holds
        if allowed(world, step):
            take(world, step)
        else:
            with pytest.raises(DefinitionError):
                take(world, step)
            assert world.holds == before
        for held in world.holds:
            assert held.at_ms is not None
            assert all(world.since[table.full_name] <= held.at_ms for table in held.tables)


@given(st.sets(names), st.lists(changes_of_names, max_size=8))
def test_names_change_together_as_they_would_one_by_one_or_not_at_all(
    existing: set[str], changes: list[tuple[str, ...]]
) -> None:
    before = tuple(hold(name, ("s.a",), 10) for name in sorted(existing))
    expected = name_changes(sorted(existing), changes)
    if expected is None:
        with pytest.raises(DefinitionError):
            together(before, changes)
    else:
        left = zip(before, expected, strict=True)
        assert together(before, changes) == tuple(replace(held, name=name) for held, name in left if name is not None)


@given(st.sets(st.sampled_from(["t_hold", "t_hold1", "t_hold2", "t_hold10"])))
def test_a_generated_name_is_free_and_has_the_first_free_number(names: set[str]) -> None:
    made = free_name(tuple(hold(name, ("s.t",)) for name in names), "t_hold")
    numbered = ["t_hold", "t_hold1", "t_hold2", "t_hold3"]
    assert made == next(name for name in numbered if name not in names)


@given(st.lists(steps, max_size=15))
def test_an_enforced_lag_is_kept_and_records_the_former_time_of_the_hold(script: list[tuple[object, ...]]) -> None:
    world = World()
    for step in script:
        if allowed(world, step):
            take(world, step)
    for before, after in zip(world.holds, forced(world.holds, world.windows), strict=True):
        names = [table.full_name for table in after.tables]
        least = min(world.upper[name] for name in names)
        unread = [ms for name in names for ms in world.changes[name] if before.at_ms is not None and ms > before.at_ms]
        assert before.at_ms is not None
        assert after.at_ms is not None
        if not unread or least - (min(unread) - 1) <= before.max_lag_ms:
            assert after == before  # Nothing changed, or not for so long.
        else:
            assert after == replace(before, at_ms=least - before.max_lag_ms, forced_from_ms=before.at_ms)


def test_a_table_ahead_of_the_clock_makes_no_hold_and_no_retained_history_older(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    year = 10_000
    world = World(upper=dict.fromkeys(TABLES, year), changes=dict.fromkeys(TABLES, (10, 19, 60, 70, year - 1)))
    monkeypatch.setattr(rules, "now_ms", lambda: 60)
    kept, late = hold("kept", ("s.a", "s.b"), 50), hold("late", ("s.a",), 12)
    assert forced((kept, late), world.windows) == (kept, replace(late, at_ms=61 - 25, forced_from_ms=12))


def test_max_lag_moves_a_hold_also_while_one_of_its_tables_is_gone() -> None:
    world = World(upper={"s.a": 1_000, "s.b": 500, "s.c": 20}, changes={**dict.fromkeys(TABLES, ()), "s.a": (401, 999)})
    held = hold("h", ("s.a", "s.b"), 400)
    left = {name: window for name, window in world.windows.items() if name == "s.a"}
    (moved,) = forced((held,), left)
    assert (moved.at_ms, moved.forced_from_ms) == (1_000 - held.max_lag_ms, 400)
    assert forced((held,), {}) == (held,)


def test_without_a_time_a_hold_takes_the_first_at_which_all_its_tables_are_readable() -> None:
    world = World(since={"s.a": 10, "s.b": 14, "s.c": 12})
    ((made),) = created((), hold("h", ("s.a", "s.b")), world.windows)
    assert made.at_ms == 14


def test_advance_without_a_time_goes_to_the_retained_time_of_all_tables_and_never_back() -> None:
    world = World(upper={"s.a": 30, "s.b": 40, "s.c": 20})
    held = (hold("h", ("s.a", "s.b"), 10),)
    (moved,) = advanced(held, "h", None, world.windows)
    assert moved.at_ms == 40 - 1 - world.retention
    later = (hold("h", ("s.a",), 50),)
    assert advanced(later, "h", None, world.windows) == later


def test_a_hold_goes_back_only_where_another_holds_all_of_its_tables() -> None:
    world = World(upper=dict.fromkeys(TABLES, 100))
    pair = hold("pair", ("s.a", "s.b"), 50)
    of_a = hold("of_a", ("s.a",), 20)
    with pytest.raises(NotReadable) as refused:
        advanced((pair, of_a), "pair", 30, world.windows)
    assert 'Retention keeps "s.b" from 91' in refused.value.detail
    of_b = hold("of_b", ("s.b",), 25)
    after = advanced((pair, of_a, of_b), "pair", 30, world.windows)
    assert [h.at_ms for h in after] == [30, 20, 25]
    with pytest.raises(NotReadable) as refused:
        advanced((pair, of_a, of_b), "pair", 24, world.windows)
    assert 'Others hold "s.a": "of_a" at 20.' in refused.value.detail
    assert 'Others hold "s.b": "of_b" at 25.' in refused.value.detail
    assert refused.value.hint == "Choose 25 or later."


def test_a_hold_may_begin_in_the_future_and_an_advance_by_hand_ends_an_enforced_one() -> None:
    world = World()
    (made,) = created((), hold("h", ("s.a",), 1_000), world.windows)
    assert made.at_ms == 1_000
    (moved,) = advanced((replace(made, at_ms=12, forced_from_ms=11),), "h", 13, world.windows)
    assert (moved.at_ms, moved.forced_from_ms) == (13, None)


def test_a_hold_on_a_table_without_rows_begins_with_its_first() -> None:
    waiting = created((), hold("h", ("s.a", "s.new")), World().windows)
    assert [h.at_ms for h in waiting] == [None]
    assert begin_waiting(waiting, World().windows) == waiting
    assert forced(waiting, World().windows) == waiting
    readable = {**World().windows, "s.new": HeldWindow(HeldTable("s.new", "s.new"), 17, 18, 17)}
    assert [h.at_ms for h in begin_waiting(waiting, readable)] == [17]
    with pytest.raises(NotReadable, match="cannot be advanced yet"):
        advanced(waiting, "h", 12, World().windows)
