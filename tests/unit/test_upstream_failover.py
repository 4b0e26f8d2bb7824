"""A failover is distinguished from a restored database by the timelines of its log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.errors import UpstreamError
from lakehold.model.committed_transactions import NOTHING_COMMITTED, CommittedTransactions
from lakehold.model.high_water_marks import HighWaterMarks, SnapshotProgress
from lakehold.model.log_positions import WAL
from lakehold.model.readers import ReaderState, TableProgress
from lakehold.upstream.found.found import Found, FoundSignalTable
from lakehold.upstream.found.server_log import FoundFailover, FoundLog
from lakehold.upstream.plan.capture_plan import plan, plan_resnapshot
from lakehold.upstream.plan.failover_steps import CopySlot, TakeLog
from lakehold.upstream.postgres.failover import branches_of
from lakehold.upstream.wanted.targets import highest_position
from lakehold.upstream.wanted.wanted import Wanted
from tests.upstream_world import World, reconcile, target

A = {"a1": "public.a"}
FIRST = FoundLog("7", 1, is_awaited=True)
SECOND = FoundLog("7", 2, ((1, 500),))
THIRD = FoundLog("7", 3, ((1, 500), (2, 700)))


@pytest.fixture
def world() -> World:
    """Return a captured database, whose log was recorded, and which is at position 1000; the lake is at 500."""
    world = World(frozenset({"public.a"}), failover=FoundFailover(FIRST, has_failover_slots=True, is_copied=True))
    assert reconcile(world, target(A))
    world.log = FIRST
    world.signal_table = FoundSignalTable(seen_ms=10)
    return world


def goal(applied_position: int | None = 500) -> Wanted:
    return replace(target(A, applied_position=applied_position), seen_upstream_ms=20)


def promoted(world: World, log: FoundLog, *, was_copied: bool = True) -> World:
    world.failover = replace(world.failover, log=log, was_copied=was_copied)
    return world


def refusal(wanted: Wanted, found: Found) -> UpstreamError:
    with pytest.raises(UpstreamError) as refused:
        plan(wanted, found)
    assert refused.value.detail
    return refused.value


@pytest.mark.parametrize(
    ("recorded", "log", "applied_position"),
    [
        (FIRST, SECOND, 500),
        (FIRST, SECOND, 499),
        (FIRST, SECOND, None),
        (FIRST, THIRD, 500),
        (replace(SECOND, is_awaited=True), THIRD, 700),
    ],
)
def test_a_standby_that_has_all_goes_on_though_the_last_inspection_did_not_reach_it(
    world: World, recorded: FoundLog, log: FoundLog, applied_position: int | None
) -> None:
    world.log = recorded
    assert plan(goal(applied_position), promoted(world, log).inspect(goal(applied_position))).steps == ()


@pytest.mark.parametrize(
    ("recorded", "log", "applied_position", "detail"),
    [
        (
            FIRST,
            SECOND,
            501,
            "left timeline 1 at 0/1F4 for timeline 2, and the lake has changes up to 0/1F5 of timeline 1",
        ),
        (FIRST, THIRD, 600, "left timeline 1 at 0/1F4 for timeline 3"),
        (SECOND, THIRD, 701, "left timeline 2 at 0/2BC for timeline 3"),
        (SECOND, FIRST, 100, "is on timeline 1 of its log, which does not continue timeline 2 (from 0/1F4 on)"),
        (SECOND, FoundLog("7", 2, ((1, 400),)), 100, "timeline 2 of its log (from 0/190 on), which does not continue"),
        (SECOND, FoundLog("7", 3, ((1, 400), (2, 900))), 100, "does not continue timeline 2 (from 0/1F4 on)"),
        (SECOND, FoundLog("7", 3, ((1, 500),)), 100, "does not continue timeline 2 (from 0/1F4 on)"),
    ],
)
def test_a_log_that_left_before_what_the_lake_has_has_gone_back(
    world: World, recorded: FoundLog, log: FoundLog, applied_position: int, detail: str
) -> None:
    world.log = replace(recorded, is_awaited=True)
    refused = refusal(goal(applied_position), promoted(world, log).inspect(goal(applied_position)))
    assert (refused.code, detail in refused.detail) == ("database-restored", True), refused.detail


def test_a_primary_that_sent_before_its_standby_had_it_leaves_doubt(world: World) -> None:
    world.log = replace(FIRST, is_awaited=False)
    refused = refusal(goal(), promoted(world, SECOND).inspect(goal()))
    assert refused.code == "failover-uncertain"
    assert "timeline 2 left timeline 1 at 0/1F4" in refused.detail
    assert "ALTER SOURCE shop RESNAPSHOT" in refused.hint


def test_a_slot_that_the_standby_had_not_copied_was_created_later(world: World) -> None:
    refused = refusal(goal(), promoted(world, SECOND, was_copied=False).inspect(goal()))
    assert refused.code == "slot-lost"
    assert "had not copied the slot" in refused.detail
    world.slot = None
    assert refusal(goal(), world.inspect(goal())).code == "slot-lost"


def test_changes_that_the_lake_applied_since_the_failover_do_not_count(world: World) -> None:
    found = replace(promoted(world, SECOND).inspect(goal(900)), applied_position=500)
    assert plan(goal(900), found).steps == ()


@pytest.mark.parametrize("log", [FIRST, replace(FIRST, system="8"), None])
def test_without_another_timeline_the_last_inspection_decides(world: World, log: FoundLog | None) -> None:
    world.failover = replace(world.failover, log=log)
    refused = refusal(goal(), world.inspect(goal()))
    assert (refused.code, "last inspected it at" in refused.detail) == ("database-restored", True)


def test_a_snapshot_above_all_that_the_lake_has_makes_good_what_was_lost(world: World) -> None:
    world.log = replace(FIRST, is_awaited=False)
    found = promoted(world, SECOND).inspect(goal(900))
    assert "RESNAPSHOT" in refusal(goal(900), found).hint
    steps = plan_resnapshot(goal(900), found).steps
    assert TakeLog("shop", "s1", SECOND, goal().signal_table, 20) in steps
    for step in steps:
        world.apply_step(step)
    assert world.log == SECOND

    world.log = FIRST
    found = world.inspect(goal(1000))
    assert "DROP SOURCE shop CASCADE" in refusal(goal(1000), found).hint
    with pytest.raises(UpstreamError, match="went back"):
        plan_resnapshot(goal(1000), found)


def test_a_slot_of_an_earlier_lakehold_is_copied_from_now_on_and_asked_for_once(world: World) -> None:
    assert world.config is not None
    assert world.config["slot.failover"] == "true"
    del world.config["slot.failover"]
    world.failover = replace(world.failover, is_copied=False)
    wanted = replace(goal(), seen_upstream_ms=None)
    assert CopySlot("s") in plan(wanted, world.inspect(wanted)).steps
    assert reconcile(world, wanted)
    world.failover = replace(world.failover, is_copied=False)
    assert plan(wanted, world.inspect(wanted)).steps == (), "a server that refused is not asked again"


@pytest.mark.parametrize(
    ("failover", "hint"),
    [
        (FoundFailover(FIRST, has_failover_slots=True, has_standbys=True, is_copied=True), ""),
        (FoundFailover(replace(FIRST, is_awaited=False), has_failover_slots=True, is_copied=True), ""),
        (FoundFailover(replace(FIRST, is_awaited=False), has_standbys=True), ""),
        (
            FoundFailover(replace(FIRST, is_awaited=False), has_failover_slots=True, has_standbys=True, is_copied=True),
            "Set synchronized_standby_slots",
        ),
        (FoundFailover(FIRST, has_failover_slots=True, has_standbys=True), 'ALTER_REPLICATION_SLOT "s" (FAILOVER)'),
        (FoundFailover(may_ask=False), ""),
        (FoundFailover(has_standbys=True, may_ask=False), "ALTER ROLE u REPLICATION, and GRANT EXECUTE ON FUNCTION"),
    ],
)
def test_a_hint_says_what_a_failover_would_lose(world: World, failover: FoundFailover, hint: str) -> None:
    world.failover = failover
    world.log = None
    wanted = replace(goal(), seen_upstream_ms=None)
    about_standbys = [each for each in plan(wanted, world.inspect(wanted)).hints if "standbys" in each]
    assert ([hint in each for each in about_standbys] == [True]) if hint else (about_standbys == [])


def test_a_server_before_version_17_is_asked_for_no_failover_slot() -> None:
    world = World(frozenset({"public.a"}))
    assert reconcile(world, target(A))
    assert world.config is not None
    assert "slot.failover" not in world.config


def test_a_history_file_names_where_each_timeline_was_left() -> None:
    text = "1\t0/3004A60\tno recovery target specified\n\n# a comment\n2\t1/FF\tbefore 2026-11-26 10:00:00+00\n"
    assert branches_of(text) == ((1, 0x3004A60), (2, 0x1_0000_00FF))
    assert branches_of("") == ()


def test_the_lake_is_at_the_end_of_its_last_commit_which_lies_above_the_events() -> None:
    high_water_marks = HighWaterMarks({0: (300, 390, 0, 0)}, SnapshotProgress((200, 200, 0, 0)))
    progress = TableProgress(high_water_marks=high_water_marks, object_id="a1")
    committed = CommittedTransactions({WAL: (400,)})
    main = ReaderState("shop", "main", {"shop.a": progress}, transactions=committed)
    assert highest_position({"main": main}, {"a1"}) == 400
    assert highest_position({"main": replace(main, transactions=NOTHING_COMMITTED)}, {"a1"}) == 390
    assert highest_position({"main": main}, {"b1"}) is None, "a table that is created again"
