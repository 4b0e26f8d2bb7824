"""Missed changes of captured tables: lakehold snapshots the tables again, or reports the gap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.found.snapshots import FoundSnapshot
from lakehold.upstream.plan.capture_plan import plan, plan_resnapshot, plan_snapshot
from lakehold.upstream.plan.capture_steps import (
    ChangePublication,
    CheckLog,
    RecordMembers,
    RecordMissed,
    Repeat,
    RequestSnapshot,
    ResumeConnector,
    Steps,
    StopConnector,
)
from tests.upstream_meddling import SIGNAL_TABLE
from tests.upstream_world import CAPTURE, World, reconcile, target

A, B, C = {"a1": "public.a"}, {"b1": "public.b"}, {"c1": "public.c"}


@pytest.fixture
def world() -> World:
    """Return a database whose table `public.a` is captured."""
    world = World(frozenset({"public.a", "public.b", "public.c"}))
    assert reconcile(world, target(A))
    return world


def again(object_id: str, upstream: str, *, confirms: bool = False) -> RequestSnapshot:
    """Build the step that requests a snapshot of a table that the lake has not begun, or if it `confirms`, has a snapshot of."""
    tables = {object_id: f"shop.{object_id}"}
    repeat = Repeat(CAPTURE.topic(upstream), tables, None if confirms else {}, confirms)
    return RequestSnapshot("shop", upstream, object_id, repeat, SIGNAL_TABLE)


def test_a_table_whose_changes_were_missed_is_snapshotted_before_it_counts_as_captured_again(world: World) -> None:
    assert reconcile(world, target(A | B))
    world.unpublish("public.a")
    world.leave_out("public.b")
    goal = target(A | B)
    planned = plan(goal, world.inspect(goal))
    assert planned.steps[:5] == (
        StopConnector("shop"),
        again("a1", "public.a"),
        again("b1", "public.b"),
        ChangePublication("p", ("public.a",)),
        RecordMembers("shop", "s1", "p", ("public.a", "public.b")),
    )
    assert planned.steps[-1] == ResumeConnector("shop")
    assert [hint.split(" were missed")[0] for hint in planned.hints] == ["changes of public.a", "changes of public.b"]
    assert not any("RESNAPSHOT" in hint for hint in planned.hints)
    assert reconcile(world, goal)
    assert world.missed == set()
    assert plan(goal, world.inspect(goal)).hints == ()


@pytest.mark.parametrize("cut_after", range(8))
def test_missed_changes_arrive_wherever_the_repair_was_interrupted(world: World, cut_after: int) -> None:
    goal = target(A | B | C)
    assert reconcile(world, goal)
    world.unpublish("public.a")
    world.leave_out("public.b")
    world.republish("public.c")
    reconcile(world, goal, cut_after)
    assert reconcile(world, goal)
    world.ingest()
    assert (world.missed, world.gone) == (set(), set())


def test_only_a_table_that_left_the_publication_between_two_inspections_is_snapshotted_again(world: World) -> None:
    assert reconcile(world, target(A | B))
    world.republish("public.a")
    goal = target(A | B)
    planned = plan(goal, world.inspect(goal))
    assert planned.steps == (
        StopConnector("shop"),
        again("a1", "public.a"),
        RecordMembers("shop", "s1", "p", ("public.a",)),
        ResumeConnector("shop"),
    )
    (hint,) = planned.hints
    assert "changes of public.a were missed" in hint
    assert reconcile(world, goal)
    assert plan(goal, world.inspect(goal)) == Steps()


def test_a_recreated_publication_is_checked_before_its_tables_are_snapshotted_again(world: World) -> None:
    goal = target(A | B)
    assert reconcile(world, goal)
    world.recreate_publication()
    assert plan(goal, world.inspect(goal)).steps == (
        StopConnector("shop"),
        CheckLog("s", "p", "shop"),
        again("a1", "public.a"),
        again("b1", "public.b"),
        RecordMembers("shop", "s1", "p", ("public.a", "public.b")),
        ResumeConnector("shop"),
    )
    assert reconcile(world, goal)


def test_tables_that_lakehold_adds_and_drops_show_no_gap_of_others(world: World) -> None:
    for declared, released in [(A | B, []), (B, ["public.a"]), (B | {"a2": "public.a"}, [])]:
        assert reconcile(world, target(declared, released))
    assert world.repeats == {}


def test_memberships_are_recorded_for_a_source_without_them(world: World) -> None:
    world.recorded.clear()
    goal = target(A)
    assert plan(goal, world.inspect(goal)).steps == (RecordMembers("shop", "s1", "p", ("public.a",)),)
    assert reconcile(world, goal)


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_second_snapshot_finds_deleted_rows_where_the_first_was_requested_too_early(
    world: World, is_behind: bool
) -> None:
    goal = target(A)
    world.unpublish("public.a")
    if is_behind:
        world.unread.add("public.a")
    assert reconcile(world, goal)
    assert world.gone
    world.ingest()
    assert bool(world.gone) is is_behind
    further = plan(replace(goal, lake=world.lake(goal)), world.inspect(goal)).steps
    assert further == ((again("a1", "public.a", confirms=True),) if is_behind else ())
    assert reconcile(world, goal)
    world.ingest()
    assert world.gone == set()


def test_a_shared_snapshot_is_requested_again_once_all_its_tables_have_the_first_one(world: World) -> None:
    goal = target(A | {"a2": "public.a"})
    assert reconcile(world, goal)
    world.unpublish("public.a")
    world.unread.add("public.a")
    assert reconcile(world, goal)
    world.ingest()
    last = world.repeated.pop("a1")
    assert reconcile(world, goal)
    assert world.repeats["a2"].signal_id == last
    world.repeated["a1"] = last
    assert reconcile(world, goal)
    assert world.repeats["a1"] == world.repeats["a2"]
    assert world.repeats["a1"].signal_id != last


def test_a_table_that_joins_over_a_topic_that_lacks_changes_has_no_deleted_rows(world: World) -> None:
    world.unpublish("public.a")
    assert reconcile(world, target(A))
    world.ingest()
    goal = target(A | {"a2": "public.a"})
    assert reconcile(world, goal)
    world.ingest()
    assert not world.repeats["a2"].is_certain
    assert reconcile(world, goal)
    assert world.repeats["a2"].is_certain, (
        "the second one shows deletes: it was requested when the lake had read the topic"
    )


def test_a_connector_that_has_not_sent_the_whole_log_counts_as_lagging(world: World) -> None:
    goal = target(A)
    world.unpublish("public.a")
    found = world.inspect(goal)
    assert found.database is not None
    lagging = replace(found, database=replace(found.database, confirmed=found.database.position - 1))
    (requested,) = (step for step in plan(goal, lagging).steps if isinstance(step, RequestSnapshot))
    assert requested.repeat is not None
    assert requested.repeat.read is None


def test_a_repeated_snapshot_that_failed_is_requested_again(world: World) -> None:
    goal = target(A)
    world.unpublish("public.a")
    assert reconcile(world, goal)
    world.repeats["a1"] = replace(world.repeats["a1"], succeeded=False)
    assert plan(goal, world.inspect(goal)).steps == (again("a1", "public.a"),)


def test_missed_changes_of_a_table_without_a_key_are_only_reported(world: World) -> None:
    world.keyless = frozenset({"public.a"})
    world.unpublish("public.a")
    goal = target(A)
    planned = plan(goal, world.inspect(goal))
    assert planned.steps == (
        RecordMissed("shop", A),
        ChangePublication("p", ("public.a",)),
        RecordMembers("shop", "s1", "p", ("public.a",)),
    )
    (hint,) = planned.hints
    assert "no primary key, so only ALTER SOURCE shop RESNAPSHOT brings them" in hint
    assert reconcile(world, goal)
    assert plan(goal, world.inspect(goal)).hints == (hint,), "the gap is reported until all tables are snapshotted"
    for step in plan_resnapshot(goal, world.inspect(goal)).steps:
        world.apply_step(step)
    assert plan(goal, world.inspect(goal)) == Steps()


def test_a_table_whose_rows_have_no_key_in_the_lake_is_not_snapshotted_alone_though_it_got_one(world: World) -> None:
    world.multisets = frozenset({"public.a"})
    world.unpublish("public.a")
    goal = target(A)
    planned = plan(goal, world.inspect(goal))
    assert RecordMissed("shop", A) in planned.steps
    assert not any(isinstance(step, RequestSnapshot) for step in planned.steps)
    (hint,) = planned.hints
    assert "had no primary key when the lake began it, so only ALTER SOURCE shop RESNAPSHOT brings them" in hint
    assert reconcile(world, goal)
    assert plan(goal, world.inspect(goal)).hints == (hint,)
    assert plan_snapshot(goal, world.inspect(goal), "public.a") == Steps((RecordMissed("shop", A),))
    for step in plan_resnapshot(goal, world.inspect(goal)).steps:
        world.apply_step(step)
    assert plan(goal, world.inspect(goal)) == Steps()


def test_a_table_that_joined_without_a_key_waits_for_a_snapshot_of_all_tables_though_it_got_one(world: World) -> None:
    world.keyless = frozenset({"public.b"})
    goal = target(A | B)
    assert reconcile(world, goal)
    world.keyless, world.multisets = frozenset(), frozenset({"public.b"})
    planned = plan(goal, world.inspect(goal))
    assert planned.steps == ()
    (hint,) = planned.hints
    assert hint.startswith(
        "table public.b had no primary key when the lake began it, so it cannot be snapshotted alone"
    )


def test_missed_changes_arrive_when_the_table_gets_a_key(world: World) -> None:
    world.keyless = frozenset({"public.a"})
    world.unpublish("public.a")
    goal = target(A)
    assert reconcile(world, goal)
    world.keyless = frozenset()
    assert reconcile(world, goal)
    world.ingest()
    assert (world.missed, world.gone) == (set(), set())
    assert plan(goal, world.inspect(goal)).hints == ()


def test_a_failed_snapshot_is_requested_again_after_a_pause_and_reported_meanwhile(world: World) -> None:
    goal = target(A | B)
    assert reconcile(world, goal)
    denied = FoundSnapshot(requested=1, failures=("SQL_EXCEPTION",), failed_in_row=1, again_ms=30_000)
    world.snapshots["b1"] = denied
    early, late = (plan(goal, replace(world.inspect(goal), now_ms=now_ms)) for now_ms in (29_999, 30_000))
    assert early.steps == (), "the connector would be stopped for the snapshot"
    (hint,) = early.hints
    assert "the snapshot of public.b failed: SQL_EXCEPTION" in hint
    assert "ALTER SOURCE shop REPAIR" in hint
    requested = RequestSnapshot("shop", "public.b", "b1", None, SIGNAL_TABLE)
    assert late.steps == (StopConnector("shop"), requested, ResumeConnector("shop"))
    assert late.hints == early.hints, "the failure is reported once"
    assert plan(goal, world.inspect(goal)).steps == late.steps, "a repair by hand does not wait"

    moment = FoundType("timestamptz", "timestamp with time zone")
    world.columns = {"public.b": (FoundColumn("at", moment.text, moment, is_nullable=False, is_key=True),)}
    (hint,) = plan(goal, replace(world.inspect(goal), now_ms=29_999)).hints
    assert (
        "With at (timestamp with time zone) in its primary key Debezium snapshots no more than 1,024 rows alone" in hint
    )
    assert "ALTER SOURCE shop RESNAPSHOT" in hint


def test_a_repeated_snapshot_that_failed_waits_as_well(world: World) -> None:
    goal = target(A | {"a2": "public.a"})
    assert reconcile(world, goal)
    world.unpublish("public.a")
    assert reconcile(world, goal)
    for object_id in ("a1", "a2"):
        world.repeats[object_id] = replace(world.repeats[object_id], succeeded=False)
    world.snapshots["a2"] = replace(
        world.snapshots["a2"], failures=("SQL_EXCEPTION",), failed_in_row=2, again_ms=60_000
    )
    early, late = (plan(goal, replace(world.inspect(goal), now_ms=now_ms)) for now_ms in (0, 60_000))
    assert early.steps == ()
    assert [type(step) for step in late.steps] == [RequestSnapshot]


def test_a_snapshot_that_failed_without_a_key_is_requested_as_soon_as_one_exists(world: World) -> None:
    world.keyless = frozenset({"public.b"})
    goal = target(A | B)
    assert reconcile(world, goal)
    world.keyless = frozenset()
    planned = plan(goal, replace(world.inspect(goal), now_ms=0))
    assert any(isinstance(step, RequestSnapshot) for step in planned.steps)


def test_one_table_is_snapshotted_again_while_the_connector_goes_on_and_no_second_time(world: World) -> None:
    goal = target(A | B)
    assert reconcile(world, goal)
    steps = plan_snapshot(goal, world.inspect(goal), "public.b").steps
    assert steps == (again("b1", "public.b", confirms=True),)
    for step in steps:
        world.apply_step(step)
    assert world.repeats["b1"].is_certain
    assert plan(goal, world.inspect(goal)).steps == ()
    assert plan_snapshot(goal, world.inspect(goal), "public.gone").steps == ()


def test_a_table_that_lacks_changes_too_gets_a_second_snapshot_after_the_one_for_a_new_column(world: World) -> None:
    goal = target(A)
    world.unpublish("public.a")
    assert reconcile(world, goal)
    (step,) = plan_snapshot(goal, world.inspect(goal), "public.a").steps
    assert isinstance(step, RequestSnapshot)
    assert step.repeat is not None
    assert not step.repeat.confirms


def test_a_new_column_of_a_table_without_a_key_is_recorded_as_missed(world: World) -> None:
    world.keyless |= {"public.a"}
    goal = target(A)
    assert plan_snapshot(goal, world.inspect(goal), "public.a").steps == (RecordMissed("shop", A),)


def test_a_table_whose_first_snapshot_is_still_to_come_needs_no_other(world: World) -> None:
    goal = target(A | B)
    assert plan_snapshot(goal, world.inspect(goal), "public.b").steps == ()
