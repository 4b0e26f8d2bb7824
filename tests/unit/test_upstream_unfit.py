"""Captured tables of MariaDB at which their connector would fail: it leaves them out, and the others continue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from lakehold.upstream.differences.unfit import stops_of_left_out
from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.found.found import HASHED, VERSIONED, Found, FoundRelation
from lakehold.upstream.found.snapshots import FoundAlteration
from lakehold.upstream.plan.capture_plan import plan, plan_resnapshot
from lakehold.upstream.plan.capture_steps import ConfigureConnector, ForgetPosition, RecordFirstSnapshot, Steps
from lakehold.upstream.report.hints import fault_hints
from lakehold.upstream.wanted.connector_config import included_tables
from lakehold.upstream.wanted.wanted import Wanted
from tests.upstream_world import OF_MARIADB, World, reconcile, target

_ID = FoundColumn("id", "int(11)", FoundType("int", "int(11)"), is_key=True)
_IP = FoundColumn("ip", "inet6", FoundType("inet6", "inet6"))
_NAMES = {"a": "shop.a", "b": "shop.b"}

Change = Callable[[Found], Found]
"""Changes what an inspection finds."""


def _as_it_is(found: Found) -> Found:
    return found


def _of_kind(kind: str) -> Change:
    return lambda found: replace(found, relations={**found.relations, "shop.a": FoundRelation(kind)})


def _with_address(found: Found) -> Found:
    return replace(found, columns={**found.columns, "shop.a": (_ID, _IP)})


def _undefined(found: Found) -> Found:
    return replace(found, undefined=frozenset({"shop.a"}))


def _skipped(found: Found) -> Found:
    """Let a statement about `shop.a` be one that Debezium could not read."""
    return replace(found, altered={"shop.a": FoundAlteration(5, 5, 5)})


class _Shop:
    """A captured MariaDB."""

    def __init__(self, names: Mapping[str, str]) -> None:
        columns = {name: (_ID,) for name in names.values()}
        self.world = World(frozenset(names.values()), is_mariadb=True, columns=columns)
        goal = target(names, capture=OF_MARIADB)
        assert reconcile(self.world, goal)
        self.world.ingest()
        self.goal = replace(goal, lake=self.world.lake(goal))

    def plan(self, change: Change = _as_it_is, goal: Wanted | None = None) -> Steps:
        goal = goal or self.goal
        return plan(goal, change(self.world.inspect(goal)))

    def apply(self, steps: Steps) -> None:
        for step in steps.steps:
            self.world.apply_step(step)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_of_kind(VERSIONED), "is a system-versioned table"),
        (_of_kind(HASHED), "is a table with a unique hash index"),
        (_with_address, "has a column ip of type inet6"),
        (_undefined, "has a definition that Debezium cannot read"),
    ],
)
def test_a_table_at_which_the_connector_would_fail_is_left_out_until_it_changes(change: Change, message: str) -> None:
    def altered(found: Found) -> Found:
        return change(_skipped(found))

    shop = _Shop(_NAMES)
    planned = shop.plan(altered)
    (configured,) = (step for step in planned.steps if isinstance(step, ConfigureConnector))
    assert included_tables(configured.config) == ("shop.b",)
    assert not any(isinstance(step, ForgetPosition) for step in planned.steps), "the other table is not snapshotted"
    shop.apply(planned)

    left = shop.plan(altered)
    assert left.steps == ()
    (hint,) = left.hints
    assert hint.startswith(f"table shop.a {message}, so connector shop leaves it out.")
    assert hint.endswith("Or DROP TABLE shop.a")
    assert list(fault_hints(shop.goal, altered(shop.world.inspect(shop.goal)))) == [hint]

    stops = stops_of_left_out(shop.goal, altered(shop.world.inspect(shop.goal)))
    assert {object_id: stop.code for object_id, stop in stops.items()} == {"a": "table-left-out"}
    assert (stops["a"].table, stops["a"].message.endswith(message)) == ("shop.a", True)
    assert stops["a"].hint.endswith("Or DROP TABLE shop.a.")

    back = shop.plan()
    (waiting,) = stops_of_left_out(shop.goal, shop.world.inspect(shop.goal)).values()
    assert waiting.message == 'table "shop.a" waits for a snapshot'
    assert [step for step in back.steps if isinstance(step, ForgetPosition | RecordFirstSnapshot)] == [
        ForgetPosition("shop"),
        RecordFirstSnapshot("shop", _NAMES),
    ]
    (hint,) = back.hints
    assert hint.startswith("table shop.a can be captured again: connector shop takes its first snapshot again")
    shop.apply(back)
    assert included_tables(shop.world.config or {}) == ("shop.a", "shop.b")
    assert shop.plan() == Steps()
    assert stops_of_left_out(shop.goal, shop.world.inspect(shop.goal)) == {}


def test_a_connector_without_any_other_table_captures_none() -> None:
    shop = _Shop({"a": "shop.a"})
    (*_, configured, _) = shop.plan(_of_kind(VERSIONED)).steps
    assert isinstance(configured, ConfigureConnector)
    assert configured.config["table.include.list"] == "(?!)"


def test_a_snapshot_of_all_tables_skips_a_table_that_is_left_out() -> None:
    shop = _Shop(_NAMES)
    steps = plan_resnapshot(shop.goal, _of_kind(VERSIONED)(shop.world.inspect(shop.goal))).steps
    assert RecordFirstSnapshot("shop", {"b": "shop.b"}) in steps


def test_all_tables_are_snapshotted_for_a_table_that_joins_with_columns_that_debezium_does_not_know() -> None:
    shop = _Shop({"b": "shop.b"})
    shop.world.tables |= {"shop.a"}
    shop.world.columns = {name: (_ID,) for name in _NAMES.values()}
    goal = target(_NAMES, capture=OF_MARIADB, new=["a"])
    goal = replace(goal, lake=shop.world.lake(goal))
    assert RecordFirstSnapshot("shop", _NAMES) in shop.plan(_skipped, goal).steps
    assert not any(isinstance(step, ForgetPosition) for step in shop.plan(goal=goal).steps)
