"""Upstream objects that may belong to others or remain from an earlier source, and commands that a person must run by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.definitions import Capture
from lakehold.errors import UpstreamError
from lakehold.upstream.found.connector_failure import with_way_out
from lakehold.upstream.found.found import FoundSignalTable, FoundTable
from lakehold.upstream.plan.capture_plan import plan
from lakehold.upstream.plan.capture_steps import DropPublication, ForgetPosition, Steps
from lakehold.upstream.report.refusals import publication_lost
from tests.upstream_world import CAPTURE, OF_MARIADB, World, reconcile, target


def test_dropping_a_source_that_created_nothing_removes_nothing_of_others() -> None:
    world = World(frozenset({"public.a"}), slot="s", signal_table=FoundSignalTable())
    world.topics = {CAPTURE.topic("public.a"), CAPTURE.transaction_topic}
    declared, dropped = target({"a": "public.a"}), target({}, released=["public.a"])
    with pytest.raises(UpstreamError, match="is not of source") as refusal:
        plan(declared, world.inspect(declared))
    assert refusal.value.code == "topic-foreign"
    planned = plan(dropped, world.inspect(dropped))
    assert planned.steps == ()
    (hint,) = planned.hints
    assert hint == 'replication slot "s" stays, as nothing says that source "shop" made it: drop it if nobody needs it'


def test_a_publication_is_dropped_with_its_source_even_if_nothing_else_is_left() -> None:
    world = World(frozenset({"public.a"}))
    assert reconcile(world, target({"a": "public.a"}))
    world.config, world.slot, world.topics = None, None, set()
    dropped = target({}, released=["public.a"])
    assert plan(dropped, world.inspect(dropped)) == Steps((DropPublication("p"),))


def test_statements_to_run_by_hand_quote_names() -> None:
    goal = replace(target({"a": "public.Orders"}), source="Shop")
    world = World(frozenset({"public.Orders"}))
    found = world.inspect(goal)
    assert found.database is not None
    poor = replace(found, database=replace(found.database, tables={"public.Orders": FoundTable("d", True)}))
    (hint,) = plan(goal, poor).hints
    assert hint.endswith('ALTER TABLE public."Orders" REPLICA IDENTITY FULL')
    assert publication_lost("p", "Shop").hint.startswith("ALTER SOURCE `Shop` RESNAPSHOT")
    assert with_way_out("log was purged", "Shop").endswith("ALTER SOURCE `Shop` RESNAPSHOT")
    with pytest.raises(UpstreamError) as refusal:
        plan(replace(goal, applied_position=world.position + 1), world.inspect(goal))
    assert "DROP SOURCE `Shop` CASCADE" in refusal.value.hint
    assert reconcile(world, goal)
    world.tables = frozenset()
    renamed = replace(goal, tables=tuple(replace(table, full_name="shop.Orders") for table in goal.tables))
    (gone,) = plan(renamed, world.inspect(renamed)).hints
    assert "DROP TABLE shop.`Orders`, or" in gone


@pytest.mark.parametrize("capture", [CAPTURE, OF_MARIADB])
def test_the_position_of_an_earlier_connector_of_the_name_is_deleted(capture: Capture) -> None:
    world = World(frozenset({"public.a"}), has_position=True, is_mariadb=capture is OF_MARIADB)
    goal = target({"a": "public.a"}, capture=capture)
    assert reconcile(world, goal)
    assert world.snapshots["a"].is_first, (
        "with the position of another connector this one would have no snapshot and no schema history"
    )
    assert world.snapshotted == {"public.a"}


def test_a_connector_that_was_deleted_by_hand_continues_at_its_position() -> None:
    world, goal = World(frozenset({"public.a"})), target({"a": "public.a"})
    assert reconcile(world, goal)
    world.config = None
    for step in plan(goal, world.inspect(goal)).steps[:1]:
        world.apply_step(step)
    assert world.has_position
    assert not any(isinstance(step, ForgetPosition) for step in plan(goal, world.inspect(goal)).steps)
    assert reconcile(world, goal)
    world.config, world.slot = None, None
    with pytest.raises(UpstreamError, match="is lost"):
        reconcile(world, goal)
