"""Refusals, waits and hints of lakehold before anything upstream changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from lakehold.definitions import ConnectionType
from lakehold.errors import ConnectorError, UpstreamError, UpstreamRefused
from lakehold.upstream.connect.signals import requested_snapshot
from lakehold.upstream.found.connector_status import ConnectorStatus
from lakehold.upstream.found.found import OPERATIONS, FoundPublication, FoundSignalTable, FoundTable
from lakehold.upstream.found.snapshots import FoundSnapshot
from lakehold.upstream.plan.capture_plan import plan, plan_resnapshot
from lakehold.upstream.plan.capture_steps import (
    ChangePublication,
    ConfigureConnector,
    CreateConnector,
    CreatePublication,
    RecordMembers,
    RecordMissed,
    RecordSyncPoint,
    RequestSnapshot,
    RestartConnector,
    ResumeConnector,
    Steps,
    StopConnector,
)
from lakehold.upstream.plan.config_differences import differences
from lakehold.upstream.wanted.connector_config import SENDS_TRUNCATES
from lakehold.upstream.wanted.wanted import MARK
from tests.upstream_meddling import SIGNAL_TABLE
from tests.upstream_world import CAPTURE, OF_MARIADB, World, reconcile, target

A, B = {"a1": "public.a"}, {"b1": "public.b"}


@pytest.fixture
def world() -> World:
    """Return a database whose table `public.a` is captured."""
    world = World(frozenset({"public.a", "public.b"}))
    assert reconcile(world, target(A))
    return world


def lose_mark(world: World) -> None:
    world.config = {**(world.config or {}), MARK: "another"}


def forget_all_but_a_topic(world: World) -> None:
    world.config, world.topics = None, {CAPTURE.topic("public.a")}


def forget_all_but_the_slot(world: World) -> None:
    world.config, world.topics = None, set()


def drop_publication(world: World) -> None:
    world.publication = None


def restore(world: World) -> None:
    world.position = 10


def restore_and_change(world: World) -> None:
    world.signal_table = FoundSignalTable(seen_ms=400)


def narrow_that_of_others(world: World) -> None:
    world.publication = replace(world.made_publication, is_own=False, narrowed={"public.a": "rows"})


def be_another_sources(world: World) -> None:
    world.publication = replace(world.made_publication, is_own=False, is_foreign=True)


def drop_slot(world: World) -> None:
    world.slot = None


@pytest.mark.parametrize(
    ("happened", "code", "way_out"),
    [
        (lose_mark, "connector-foreign", "another TOPIC PREFIX, PUBLICATION and SLOT"),
        (forget_all_but_a_topic, "topic-foreign", "another TOPIC PREFIX, PUBLICATION and SLOT"),
        (forget_all_but_the_slot, "slot-foreign", "another SLOT"),
        (restore, "database-restored", "DROP SOURCE shop CASCADE"),
        (restore_and_change, "database-restored", "DROP SOURCE shop CASCADE"),
        (narrow_that_of_others, "publication-partial", "ALTER PUBLICATION p SET (publish ="),
        (be_another_sources, "publication-foreign", "another PUBLICATION"),
        (drop_slot, "slot-lost", "ALTER SOURCE shop RESNAPSHOT"),
        (drop_publication, "publication-lost", "ALTER SOURCE shop RESNAPSHOT"),
    ],
)
def test_an_unusable_upstream_is_refused_with_a_way_out(
    world: World, happened: Callable[[World], None], code: str, way_out: str
) -> None:
    happened(world)
    goal = replace(target(A, applied_position=500), seen_upstream_ms=500)
    with pytest.raises(UpstreamError) as refusal:
        plan(goal, world.inspect(goal))
    assert refusal.value.code == code
    assert refusal.value.detail
    assert way_out in refusal.value.hint


def test_the_error_of_a_restored_database_gives_the_lost_range_and_its_source_may_be_dropped(world: World) -> None:
    world.position = 0x1_0000_00FF
    goal = target(A, applied_position=0x2_0000_0000)
    with pytest.raises(UpstreamError) as refusal:
        plan(goal, world.inspect(goal))
    assert "ends at 1/FF, and the lake has changes up to 2/0" in refusal.value.detail
    with pytest.raises(UpstreamError, match="went back"):
        plan_resnapshot(goal, world.inspect(goal))
    gone = target({}, released=["public.a"])
    assert reconcile(world, gone)
    assert world.config is None


def test_tables_wait_for_the_first_snapshot_unless_it_fails(world: World) -> None:
    goal = target(A | B)
    found = replace(world.inspect(goal), first_snapshot_complete=False)
    waiting = plan(goal, found)
    assert waiting.steps == ()
    assert waiting.hints == ("the tables that are new to connector shop join it when its first snapshot is complete",)

    assert found.connector is not None
    assert plan(target(B, released=["public.a"]), found).steps, "a table that is dropped does not wait"
    failed = replace(found.connector, status=ConnectorStatus("RUNNING", ("FAILED",), "java.net.ConnectException: no"))
    assert (
        RequestSnapshot("shop", "public.b", "b1", signal_table=SIGNAL_TABLE)
        in plan(goal, replace(found, connector=failed)).steps
    )


def test_two_tables_of_one_upstream_share_the_first_snapshot() -> None:
    world = World(frozenset({"public.a"}))
    both = target({"a1": "public.a", "a2": "public.a"})
    assert reconcile(world, both)
    assert plan(both, world.inspect(both)).steps == ()
    assert world.requested == []
    assert all(snapshot.is_first for snapshot in world.snapshots.values())


def test_a_failed_task_is_restarted_with_its_reason(world: World) -> None:
    world.trace = (
        "org.apache.kafka.connect.errors.ConnectException: outer\n\tat a\nCaused by: java.io.IOException: inner\n\tat b"
    )
    goal = target(A)
    assert plan(goal, world.inspect(goal)).steps == (RestartConnector("shop", "IOException: inner"),)


def test_a_snapshot_requested_from_a_task_that_did_not_know_the_table_is_requested_again(world: World) -> None:
    goal = target(A)
    for snapshot, requested_again in [
        (FoundSnapshot(requested=1), False),
        (FoundSnapshot(requested=1, failures=("UNKNOWN_SCHEMA",)), True),
        (FoundSnapshot(requested=2, failures=("UNKNOWN_SCHEMA",)), False),
        (FoundSnapshot(requested=1, failures=("NO_PRIMARY_KEY",)), True),
        (FoundSnapshot(requested=2, failures=("UNKNOWN_SCHEMA",), succeeded=True), False),
    ]:
        world.snapshots["a1"] = snapshot
        steps = plan(goal, world.inspect(goal)).steps
        assert (RequestSnapshot("shop", "public.a", "a1", signal_table=SIGNAL_TABLE) in steps) is requested_again, (
            snapshot
        )


def test_the_sync_point_is_written_after_the_snapshot_of_a_table_that_joined(world: World) -> None:
    both = target(A | B)
    for step in plan(both, world.inspect(both)).steps:
        world.apply_step(step)
    assert plan(both, world.inspect(both)).steps == (
        RecordSyncPoint(CAPTURE.topic_prefix, {"b1": "public.b"}, SIGNAL_TABLE),
    ), "a first snapshot is of one moment"
    assert reconcile(world, both)
    assert plan(both, world.inspect(both)).steps == ()


def test_a_table_that_gets_a_key_is_snapshotted_alone(world: World) -> None:
    world.keyless = frozenset({"public.b"})
    assert reconcile(world, target(A | B))
    assert "public.b" not in world.snapshotted
    world.keyless = frozenset()
    assert reconcile(world, target(A | B))
    assert "public.b" in world.snapshotted


def test_a_joining_table_without_a_key_gets_a_hint_for_loading_its_rows(world: World) -> None:
    world.keyless = frozenset({"public.b"})
    both = B | {"b2": "public.b"}
    goal = target(A | both, new=list(both))
    (hint,) = plan(goal, world.inspect(goal)).hints
    assert "ALTER SOURCE shop RESNAPSHOT" in hint
    assert reconcile(world, goal)
    of_all, of_another = target(A | both), target(both, ["public.a"], new=[])
    assert plan(of_all, world.inspect(of_all)).hints == (hint,), "one snapshot serves both tables of the lake"
    assert plan(of_another, world.inspect(of_another)).hints == ()
    for step in plan_resnapshot(of_all, world.inspect(of_all)).steps:
        world.apply_step(step)
    assert plan(of_all, world.inspect(of_all)).hints == ()


def test_a_lost_publication_is_created_before_all_tables_are_snapshotted_again(world: World) -> None:
    drop_publication(world)
    goal = target(A)
    steps = plan_resnapshot(goal, world.inspect(goal)).steps
    assert steps.index(CreatePublication("p", ("public.a",), "s1")) < steps.index(ResumeConnector("shop"))
    world.config = None
    assert not any(isinstance(step, CreatePublication) for step in plan(goal, world.inspect(goal)).steps)
    with pytest.raises(UpstreamError, match='publication "p" is lost'):
        reconcile(world, goal)


def test_a_missing_table_stops_none_of_the_others(world: World) -> None:
    assert reconcile(world, target(A | B))
    world.tables = frozenset({"public.b", "public.a2"})
    goal = target(A | B)
    planned = plan(goal, world.inspect(goal))
    assert planned.steps == (RecordMissed("shop", A),)
    (hint,) = planned.hints
    assert hint.startswith(
        "table public.a is not in the database any more, so the table in the lake stops. It was dropped."
    )
    assert reconcile(world, target(B, ["public.a"], new=[]))

    declaring = target(A | B, new=["a1"])
    with pytest.raises(UpstreamError) as refusal:
        plan(declaring, world.inspect(declaring))
    assert refusal.value.code == "upstream-table-missing"
    assert refusal.value.hint == "Did you mean public.a2?"
    assert refusal.value.detail == "Its tables: public.a2, public.b."


def test_a_table_that_is_already_captured_may_be_the_intended_one() -> None:
    world, accounts = World(frozenset({"public.accounts", "public.notes"})), {"a1": "public.accounts"}
    assert reconcile(world, target(accounts))
    declaring = target({**accounts, "x1": "public.acounts"}, new=["x1"])
    with pytest.raises(UpstreamError) as refusal:
        plan(declaring, world.inspect(declaring))
    assert refusal.value.hint == "Did you mean public.accounts?"


def test_the_intended_table_is_found_among_those_of_a_large_database_and_some_are_listed() -> None:
    world = World(frozenset(f"public.t{number:03}" for number in range(200)) | {"public.users"})
    declaring = target({"x1": "public.user"}, new=["x1"])
    with pytest.raises(UpstreamError) as refusal:
        plan(declaring, world.inspect(declaring))
    assert refusal.value.hint == "Did you mean public.users?"
    assert refusal.value.detail.endswith("public.t048, public.t049 and 151 more.")


def test_missing_rights_are_refused_before_anything_is_done(world: World) -> None:
    world.may_publish = False
    goal = target(A)
    assert plan(goal, world.inspect(goal)).steps == (), "the publication is not changed"
    goal = target(A | B)
    with pytest.raises(UpstreamRefused, match=r'may not add public\.b to publication "p", which is another'):
        plan(goal, world.inspect(goal))

    world.may_publish = True
    found = world.inspect(goal)
    assert found.database is not None
    tables = {"public.a": FoundTable("f", True), "public.b": FoundTable("f", True, is_owned=False)}
    with pytest.raises(UpstreamRefused, match=r'may not add public\.b to publication "p", as it does not own them'):
        plan(goal, replace(found, database=replace(found.database, tables=tables)))

    new = World(frozenset({"public.a"}), may_publish=False)
    goal = target(A)
    with pytest.raises(UpstreamRefused, match='user "u" of source "shop" may not make publication "p"'):
        plan(goal, new.inspect(goal))
    new.publication = FoundPublication(is_own=False, is_for_all=True, tables=frozenset({"public.a"}))
    assert reconcile(new, goal)


def test_a_configuration_that_connect_would_refuse_is_refused_before_anything_is_done(world: World) -> None:
    goal = target(A | B)
    found = replace(world.inspect(goal), objections=("Unable to connect: no.", "It lacks a right."))
    for planned in (plan, plan_resnapshot):
        with pytest.raises(ConnectorError) as refusal:
            planned(goal, found)
        assert refusal.value.detail == "Unable to connect: no. It lacks a right."


def test_a_publication_of_others_is_only_added_to(world: World) -> None:
    world.publication = FoundPublication(is_own=False, is_for_all=False, tables=frozenset({"public.z"}))
    goal = target(A)
    assert ChangePublication("p", ("public.a",)) in plan(goal, world.inspect(goal)).steps
    world.publication = FoundPublication(is_own=False, is_for_all=True, tables=frozenset())
    assert plan(goal, world.inspect(goal)).steps == ()


def test_an_incomplete_foreign_publication_is_refused_with_its_gaps() -> None:
    world = World(frozenset({"public.a", "public.b"}))
    world.publication = FoundPublication(
        False,
        False,
        frozenset({"public.a"}),
        operations=frozenset({"insert"}),
        narrowed={"public.a": "rows and columns"},
    )
    with pytest.raises(UpstreamError) as refusal:
        plan(target(A), world.inspect(target(A)))
    assert "publish delete, truncate, update. For public.a it leaves out rows and columns." in refusal.value.detail
    world.publication = replace(world.publication, operations=OPERATIONS - {"truncate"})
    with pytest.raises(UpstreamError, match="leaves out changes") as refusal:
        plan(target(B), world.inspect(target(B)))
    assert refusal.value.detail == "It does not publish truncate."
    ignoring = replace(target(B), config=dict(target(B).config.items() - SENDS_TRUNCATES.items()))
    assert CreateConnector in map(type, plan(ignoring, world.inspect(ignoring)).steps), (
        "the connector leaves out TRUNCATE itself"
    )


def test_tables_of_a_foreign_publication_that_was_narrowed_and_repaired_are_snapshotted_again(world: World) -> None:
    goal = target(A)
    world.publication = replace(world.made_publication, is_own=False)
    world.narrow("public.a")
    recorded = RecordMembers("shop", "s1", "p", ("public.a",))
    assert plan(goal, world.inspect(goal)).steps == (recorded,), "the marks show the narrowing after the repair"
    world.apply_step(recorded)
    with pytest.raises(UpstreamError, match="leaves out changes"):
        plan(goal, world.inspect(goal))
    world.widen()
    assert RequestSnapshot in map(type, plan(goal, world.inspect(goal)).steps)


def test_missing_settings_of_the_database_are_hinted_at(world: World) -> None:
    goal = target(A)
    found = world.inspect(goal)
    assert found.database is not None
    poor = replace(found.database, tables={"public.a": FoundTable("d", True)})
    (hint,) = plan(goal, replace(found, database=poor)).hints
    assert hint.endswith("ALTER TABLE public.a REPLICA IDENTITY FULL")


@pytest.mark.parametrize(
    ("version", "is_reported"), [("3.6.3.Final", True), ("2.7.4.Final", True), ("3.7.0.Final", False), ("", False)]
)
def test_a_debezium_that_may_lose_changes_is_reported(world: World, version: str, is_reported: bool) -> None:
    goal = target(A)
    hints = plan(goal, replace(world.inspect(goal), connector_version=version)).hints
    assert [f"have Debezium {version} for PostgreSQL" in hint for hint in hints] == [True] * is_reported


def test_passwords_are_not_shown() -> None:
    found = {"database.password": "old", "tasks.max": "1", "x.sasl.jaas.config": "a", "gone": "1"}
    wanted = {"database.password": "new", "tasks.max": "2", "x.sasl.jaas.config": "b", "new": "2"}
    assert list(differences(found, wanted)) == [
        "database.password changed",
        "gone 1 removed",
        "new 2 added",
        "tasks.max from 1 to 2",
        "x.sasl.jaas.config changed",
    ]
    assert "secret" not in repr(target(A))


def test_mysql_and_mariadb_keep_the_structure_of_their_tables() -> None:
    capture = replace(CAPTURE, database=ConnectionType.MARIADB, publication=None, slot=None, server_id=7)
    goal = target({"a1": "shop.a"}, capture=capture)
    assert goal.config["connector.class"].endswith("MariaDbConnector")
    assert goal.config["database.server.id"] == "7"
    assert "shop.schema-history" in {topic.name for topic in goal.topics}


def test_a_signal_names_tables_as_debezium_reads_them() -> None:
    def named(upstream: str) -> list[str]:
        collections: list[str] = json.loads(requested_snapshot("a1", upstream))["data"]["data-collections"]
        return collections

    assert named("public.orders") == ["public.orders"]
    assert named("My Schema.Order,Lines.x") == ['"My Schema"."Order,Lines.x"']


def test_a_connector_of_postgresql_captures_tables_in_their_declared_case() -> None:
    listed = target({"a": "public.Orders", "b": "my schema.a,b"}).config["table.include.list"]
    assert listed == r"(?-i:my\ schema\.a\,b),(?-i:public\.Orders)"
    assert CreateConnector("shop", {"table.include.list": listed}).description.endswith(
        "over my schema.a,b,public.Orders"
    )
    of_mariadb = target({"a": "shop.orders"}, capture=OF_MARIADB).config["table.include.list"]
    assert of_mariadb == r"shop\.orders", "the server decides whether case matters"


def test_a_connector_whose_list_was_written_without_case_is_migrated_without_a_snapshot() -> None:
    world, goal = World(frozenset({"public.a", "public.b"})), target({"a": "public.a", "b": "public.b"})
    assert reconcile(world, goal)
    assert world.config is not None
    world.config["table.include.list"] = r"public\.a,public\.b"
    planned = plan(goal, world.inspect(goal))
    assert [type(step) for step in planned.steps] == [StopConnector, ConfigureConnector, ResumeConnector]
    assert planned.hints == ()
    assert reconcile(world, goal)
    assert plan(goal, world.inspect(goal)) == Steps()
