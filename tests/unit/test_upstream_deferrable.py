"""A DEFERRABLE key of PostgreSQL identifies rows only when their transaction has committed, so it is no key of the lake."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.errors import UpstreamError
from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.found.found import Found, FoundTable
from lakehold.upstream.plan.capture_plan import plan
from lakehold.upstream.report.hints import fault_hints
from lakehold.upstream.wanted.wanted import InLake, Wanted
from tests.upstream_world import World, reconcile, target

STEPS = {"t": "public.steps"}


def inspected(world: World, goal: Wanted) -> Found:
    """Return what an inspection finds where the key of `public.steps` is DEFERRABLE."""
    found = world.inspect(goal)
    assert found.database is not None
    tables = {**found.database.tables, "public.steps": FoundTable("f", has_key=False, deferrable_key=("pos",))}
    return replace(found, database=replace(found.database, tables=tables))


def with_key(goal: Wanted, *key: str) -> Wanted:
    return replace(goal, tables=tuple(replace(table, key=key) for table in goal.tables))


def test_a_statement_says_that_the_table_has_no_key_or_loses_rows() -> None:
    world, goal = World(frozenset({"public.steps"})), target(STEPS, new=[*STEPS])
    (hint,) = plan(goal, inspected(world, goal)).hints
    assert hint.startswith("the key of table public.steps is DEFERRABLE, so shop.t has no key")
    other = with_key(goal, "id")
    assert plan(other, inspected(world, other)).hints == ()
    own = with_key(goal, "pos")
    (hint,) = plan(own, inspected(world, own)).hints
    assert "rows that exchange its values in one transaction get lost in shop.t" in hint


def test_an_envelope_that_needs_a_key_is_refused() -> None:
    world, goal = World(frozenset({"public.steps"})), target(STEPS, new=[*STEPS])
    world.columns = {"public.steps": (FoundColumn("pos", "integer", FoundType("int4", "integer")),)}
    goal = replace(goal, tables=tuple(replace(table, needs_before=False) for table in goal.tables))
    with pytest.raises(UpstreamError, match=r'table "public\.steps" has no primary key') as refusal:
        plan(goal, inspected(world, goal))
    assert "A DEFERRABLE key does not count" in refusal.value.detail


def test_a_key_that_became_deferrable_is_a_fault_of_tables_that_have_it() -> None:
    world, goal = World(frozenset({"public.steps"})), target(STEPS)
    assert reconcile(world, goal)
    assert [*fault_hints(goal, inspected(world, goal))] == []
    standing = replace(goal, lake={"t": InLake({})})
    found = inspected(world, standing)
    (hint,) = fault_hints(standing, found)
    assert hint.startswith("the key of table public.steps is DEFERRABLE: rows")
    assert hint.endswith("or make the constraint NOT DEFERRABLE, and ALTER SOURCE shop RESNAPSHOT brings lost rows")
    without_key = replace(found, multisets=frozenset({"public.steps"}))
    assert [*fault_hints(standing, without_key)] == []
