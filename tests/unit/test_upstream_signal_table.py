"""The table in which the connector marks snapshots of joining tables, created by lakehold where it has the rights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lakehold.errors import UpstreamRefused
from lakehold.upstream.found.found import FoundPublication, FoundSignalTable
from lakehold.upstream.mysql.grants import rights
from lakehold.upstream.mysql.gtids import last_gtid
from lakehold.upstream.plan.capture_plan import plan
from lakehold.upstream.plan.capture_steps import (
    ChangePublication,
    CreateSignalTable,
    DropSignalTable,
    RecordSyncPoint,
    RequestSnapshot,
    ResumeConnector,
    StopConnector,
)
from lakehold.upstream.wanted.connector_config import seen_ms, signal_table_of
from lakehold.upstream.wanted.wanted import Wanted
from tests.upstream_meddling import SIGNAL_TABLE
from tests.upstream_world import OF_MARIADB, World, reconcile, target

A, B = {"a1": "public.a"}, {"b1": "public.b"}
CREATE = CreateSignalTable(SIGNAL_TABLE, "p")
EVERY = {"SELECT", "INSERT", "DELETE", "CREATE", "DROP"}


@pytest.fixture
def world() -> World:
    """Return a database without a publication."""
    return World(frozenset({"public.a", "public.b"}))


@pytest.fixture
def mariadb() -> World:
    """Return a database of MariaDB."""
    return World(frozenset({"public.a", "public.b"}), is_mariadb=True)


def _signal_table(world: World) -> str | None:
    return (world.config or {}).get("signal.data.collection")


def test_the_table_is_created_with_the_first_table_and_dropped_with_the_source(world: World) -> None:
    goal = target(A)
    assert CREATE in plan(goal, world.inspect(goal)).steps
    assert reconcile(world, goal)
    assert _signal_table(world) == SIGNAL_TABLE
    gone = target({}, released=["public.a"])
    assert DropSignalTable(SIGNAL_TABLE) in plan(gone, world.inspect(gone)).steps


def test_a_table_that_the_user_does_not_own_is_used_and_stays(world: World) -> None:
    world.signal_table = FoundSignalTable(is_owned=False)
    world.publication = FoundPublication(is_own=False, is_for_all=False, tables=frozenset({"public.a", SIGNAL_TABLE}))
    world.may_publish = world.may_make_signal_table = False
    goal = target(A)
    assert CREATE not in plan(goal, world.inspect(goal)).steps
    assert reconcile(world, goal)
    assert _signal_table(world) == SIGNAL_TABLE
    gone = target({}, released=["public.a"])
    assert DropSignalTable(SIGNAL_TABLE) not in plan(gone, world.inspect(gone)).steps


@pytest.mark.parametrize("lost", ["table", "membership"])
def test_a_lost_table_is_created_again_while_the_connector_is_stopped(world: World, lost: str) -> None:
    goal = target(A)
    assert reconcile(world, goal)
    if lost == "table":
        world.drop_signal_table()
    else:
        assert world.publication is not None
        world.publish(world.publication.tables - {SIGNAL_TABLE})
    assert plan(goal, world.inspect(goal)).steps == (StopConnector("shop"), CREATE, ResumeConnector("shop"))
    assert reconcile(world, goal)


@pytest.mark.parametrize("denied", ["make", "publish", "write"])
def test_tables_join_without_a_signal_table_with_a_hint_where_none_is_possible(world: World, denied: str) -> None:
    if denied == "make":
        world.may_make_signal_table = False
    elif denied == "publish":
        world.may_publish = False
        world.publication = FoundPublication(is_own=False, is_for_all=False, tables=frozenset(world.tables))
    else:
        world.signal_table = FoundSignalTable(may_write=False)
    assert reconcile(world, target(A))
    assert _signal_table(world) is None
    goal = target(A | B, new=["b1"])
    (hint,) = plan(goal, world.inspect(goal)).hints
    assert hint.startswith(f"user u cannot have the signal table {SIGNAL_TABLE}")
    assert reconcile(world, goal)
    assert plan(goal, world.inspect(goal)).hints == (), "the table has joined"


def test_rights_that_are_granted_later_are_used(world: World) -> None:
    world.may_make_signal_table = False
    goal = target(A)
    assert reconcile(world, goal)
    world.may_make_signal_table = True
    assert CREATE in plan(goal, world.inspect(goal)).steps
    assert reconcile(world, goal)
    assert _signal_table(world) == SIGNAL_TABLE
    world.may_make_signal_table = False
    assert plan(goal, world.inspect(goal)).steps == (), "the signal table exists"


def test_a_publication_for_all_tables_includes_the_signal_table(world: World) -> None:
    world.publication = FoundPublication(is_own=False, is_for_all=True, tables=frozenset({"public.a"}))
    goal = target(A)
    assert CreateSignalTable(SIGNAL_TABLE, None) in plan(goal, world.inspect(goal)).steps


def test_the_signal_table_does_not_count_as_a_released_table(world: World) -> None:
    both = target(A | B)
    assert reconcile(world, both)
    assert world.publication is not None
    world.publication = replace(world.publication, is_own=True)
    left = target(A, released=["public.b"])
    steps = plan(left, world.inspect(left)).steps
    assert ChangePublication("p", (), ("public.b",)) in steps


def test_the_name_of_the_signal_table_needs_no_quotes_in_postgresql() -> None:
    assert signal_table_of("9") == "lakehold_signals.of_9"
    _, name = signal_table_of("s" * 63).split(".")
    assert len(name) == 63


def test_in_mariadb_the_signal_table_is_created_before_the_connector_and_marks_the_log(mariadb: World) -> None:
    goal = _of_mariadb(A)
    described = [step.description for step in plan(goal, mariadb.inspect(goal)).steps]
    table = "create table lakehold_signals.of_7, and schema lakehold_signals unless it exists"
    assert described.index(table) < described.index("create connector shop over public.a")
    assert reconcile(mariadb, goal)
    both = _of_mariadb(A | B)
    requested = RequestSnapshot("shop", "public.b", "b1", signal_table="lakehold_signals.of_7")
    for step in (steps := plan(both, mariadb.inspect(both)).steps):
        mariadb.apply_step(step)
    assert requested in steps
    assert plan(both, mariadb.inspect(both)).steps == (
        RecordSyncPoint("shop", {"b1": "public.b"}, "lakehold_signals.of_7"),
    )
    mariadb.signal_table = None
    steps = plan(both, mariadb.inspect(both)).steps
    assert steps == (
        StopConnector("shop"),
        CreateSignalTable("lakehold_signals.of_7", None),
        ResumeConnector("shop"),
        *steps[3:],
    )
    assert reconcile(mariadb, both)
    gone = _of_mariadb({}, ["public.a", "public.b"])
    assert DropSignalTable("lakehold_signals.of_7") in plan(gone, mariadb.inspect(gone)).steps


def test_without_a_signal_table_no_table_of_mariadb_joins_after_the_first_snapshot(mariadb: World) -> None:
    mariadb.may_make_signal_table = False
    assert reconcile(mariadb, _of_mariadb(A))
    assert _signal_table(mariadb) is None
    both = _of_mariadb(A | B, new=["b1"])
    beyond = mariadb.inspect(both)
    for found in (beyond, replace(beyond, first_snapshot_complete=False)):
        with pytest.raises(UpstreamRefused) as refusal:
            plan(both, found)
        assert refusal.value.message == 'user "u" of source "shop" cannot have the signal table lakehold_signals.of_7'
        assert "GRANT CREATE, INSERT, DELETE, SELECT, DROP ON lakehold_signals.* TO u" in refusal.value.hint
    assert plan(_of_mariadb(A), mariadb.inspect(_of_mariadb(A))).steps == ()
    mariadb.may_make_signal_table = True
    assert reconcile(mariadb, both)


def test_a_table_of_mariadb_that_joined_waits_until_a_sync_point_can_be_written(mariadb: World) -> None:
    both = _of_mariadb(A | B)
    assert reconcile(mariadb, _of_mariadb(A))
    for step in plan(both, mariadb.inspect(both)).steps:
        mariadb.apply_step(step)
    mariadb.signal_table, mariadb.may_make_signal_table = None, False
    with pytest.raises(UpstreamRefused):
        plan(both, mariadb.inspect(both))


@pytest.mark.parametrize(
    ("grants", "of_database", "of_table"),
    [
        (["GRANT USAGE ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*1'"], set(), set()),
        (["GRANT ALL PRIVILEGES ON *.* TO `u`@`%` WITH GRANT OPTION"], EVERY, EVERY),
        (["GRANT SELECT, RELOAD ON *.* TO `u`@`%`"], {"SELECT"}, {"SELECT"}),
        (
            ["GRANT SELECT, RELOAD ON *.* TO `u`@`%`", "GRANT INSERT ON `lakehold_signals`.* TO `u`@`%`"],
            *2 * [{"SELECT", "INSERT"}],
        ),
        (["GRANT INSERT, DROP ON `lakehold\\_signals`.* TO `u`@`%`"], *2 * [{"INSERT", "DROP"}]),
        (['GRANT INSERT ON "lakehold%".* TO "u"@"%"'], *2 * [{"INSERT"}]),
        (["GRANT INSERT, DELETE ON `lakehold_signals`.`of_7` TO `u`@`%`"], set(), {"INSERT", "DELETE"}),
        (
            ["GRANT INSERT, DELETE ON `lakehold_signals`.`of_8` TO `u`@`%`", "GRANT DROP ON `shop`.* TO `u`@`%`"],
            set(),
            set(),
        ),
        (
            ["GRANT SELECT, INSERT (`id`, `data`), DELETE ON `lakehold_signals`.`of_7` TO `u`@`%`"],
            set(),
            {"SELECT", "DELETE"},
        ),
        (["GRANT PROXY ON ''@'%' TO 'u'@'%'", "GRANT `r`@`%` TO `u`@`%`"], set(), set()),
    ],
)
def test_rights_of_a_mysql_user_are_read_from_its_grants(
    grants: list[str], of_database: set[str], of_table: set[str]
) -> None:
    assert rights(grants, "lakehold_signals") & EVERY == of_database
    assert rights(grants, "lakehold_signals", "of_7") & EVERY == of_table


def test_the_last_transaction_of_mysql_is_that_of_its_server_or_its_group() -> None:
    own, other = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
    assert last_gtid(f"{other}:9,\n{own}:1-5:7", own) == f"{own}:7"
    assert last_gtid(f"{other}:3-12", own) == f"{other}:12"
    assert last_gtid("", own) == ""


def _of_mariadb(declared: dict[str, str], released: Sequence[str] = (), new: Sequence[str] | None = None) -> Wanted:
    return target(declared, released, capture=OF_MARIADB, new=new)


def test_slots_with_a_common_prefix_have_separate_tables() -> None:
    begin = "lakehold_" + "x" * 51
    one, other = (signal_table_of(begin + end) for end in ("_eu", "_us"))
    assert one != other
    assert {len(name.partition(".")[2]) for name in (one, other)} == {63}
    assert signal_table_of("x" * 60) == f"lakehold_signals.of_{'x' * 60}"


@pytest.mark.parametrize(
    ("text", "kept"),
    [("lakehold looked at 17", 17), ("lakehold looked at noon", None), ("lakehold looked at ", None), ("mine", None)],
)
def test_an_overwritten_time_counts_as_none(text: str, kept: int | None) -> None:
    assert seen_ms(text) == kept
