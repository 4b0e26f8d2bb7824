"""Tables that cannot be captured, refused before a statement declares anything."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lakehold.definitions import Capture
from lakehold.errors import UpstreamError, UpstreamRefused
from lakehold.upstream.differences.unfit import TABLE_KINDS
from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.found.found import (
    HASHED,
    OF_DOTTED_SCHEMA,
    PLAIN,
    TEMPORARY,
    UNLOGGED,
    VERSIONED,
    WITHOUT_OVERLAPS,
    Found,
    FoundPublication,
    FoundRelation,
    FoundTable,
)
from lakehold.upstream.plan.capture_plan import plan, plan_resnapshot
from lakehold.upstream.plan.capture_steps import Steps
from lakehold.upstream.wanted.wanted import Wanted
from tests.upstream_world import CAPTURE, OF_MARIADB, World, reconcile, target

_COLUMNS = tuple(
    FoundColumn(name, "text", FoundType("text", "text"), is_key=name == "id") for name in ("id", "Region", "placed_at")
)


def planned(
    key: tuple[str, ...], found: FoundRelation | None, *, declared: bool = True, is_mariadb: bool = False
) -> Steps:
    """Plan a statement that declares `public.a` with KEY, where the database has `found` under the table's name."""
    world = World(
        frozenset({"public.a"}) if found is None or found.kind == PLAIN else frozenset(), is_mariadb=is_mariadb
    )
    capture = OF_MARIADB if is_mariadb else CAPTURE
    goal = target({"a": "public.a"}, capture=capture, new=["a"] if declared else None)
    goal = replace(goal, tables=tuple(replace(table, key=key) for table in goal.tables))
    relations = {} if found is None else {"public.a": found}
    return plan(goal, replace(world.inspect(goal), relations=relations, columns={"public.a": _COLUMNS}))


@pytest.mark.parametrize("is_mariadb", [False, True])
@pytest.mark.parametrize(
    ("key", "missing", "hint"),
    [
        (("nope",), "nope", "upper or lower case"),
        (("id", "region"), "region", "Did you mean Region?"),
        (("place_at",), "place_at", "Did you mean placed_at?"),
    ],
)
def test_a_key_of_columns_that_do_not_exist_is_refused(
    key: tuple[str, ...], missing: str, hint: str, is_mariadb: bool
) -> None:
    with pytest.raises(UpstreamError, match=f'has no column "{missing}"') as refusal:
        planned(key, FoundRelation(PLAIN), is_mariadb=is_mariadb)
    assert refusal.value.code == "column-missing"
    assert refusal.value.detail == "Its columns: id, Region, placed_at."
    assert hint in refusal.value.hint


@pytest.mark.parametrize("key", [(), ("id",), ("id", "Region")])
def test_a_key_of_existing_columns_is_accepted(key: tuple[str, ...]) -> None:
    assert planned(key, FoundRelation(PLAIN)).steps


def test_a_column_dropped_later_stops_nothing() -> None:
    assert planned(("nope",), FoundRelation(PLAIN), declared=False).steps


def test_a_table_that_mysql_does_not_have_or_show_is_refused() -> None:
    with pytest.raises(UpstreamError, match='is not in the database of source "shop"') as refusal:
        planned((), None, is_mariadb=True)
    assert (refusal.value.code, refusal.value.detail) == ("upstream-table-missing", 'User "u" finds none of this name.')
    assert planned((), None, declared=False, is_mariadb=True).steps


@pytest.mark.parametrize("kind", ["view", "materialized view", "foreign table"])
def test_a_view_or_another_kind_of_relation_is_refused(kind: str) -> None:
    for is_mariadb in (False, True):
        with pytest.raises(UpstreamError, match=f'"public.a" in the database of source "shop" is a {kind}') as refusal:
            planned((), FoundRelation(kind), is_mariadb=is_mariadb)
        assert refusal.value.code == "upstream-view"


def test_a_resnapshot_refuses_the_same_tables() -> None:
    world = World(frozenset({"public.a"}))
    goal = target({"a": "public.a"}, new=["a"])
    with pytest.raises(UpstreamError, match="is a view"):
        plan_resnapshot(goal, replace(world.inspect(goal), relations={"public.a": FoundRelation("view")}))


@pytest.mark.parametrize("capture", [CAPTURE, OF_MARIADB])
@pytest.mark.parametrize(
    ("one", "other"),
    [("public.заказы", "public.товары"), ("public.a$b", "public.a#b"), ("public.a.b", "public.a_b")],
)
def test_two_tables_that_would_share_a_topic_are_refused(one: str, other: str, capture: Capture) -> None:
    world = World(frozenset({one, other}), is_mariadb=capture is OF_MARIADB)
    assert reconcile(world, target({"a": one}, capture=capture))
    for declared, new in [({"a": one, "b": other}, ["b"]), ({"b": other, "a": one}, ["b"])]:
        goal = target(declared, capture=capture, new=new)
        with pytest.raises(UpstreamError, match=f'"{re.escape(one)}" and "{re.escape(other)}"') as refusal:
            plan(goal, world.inspect(goal))
        assert refusal.value.code == "topic-shared"
        assert capture.topic(one) in refusal.value.detail
        assert "TOPIC PREFIX of its own" in refusal.value.hint


def test_tables_of_one_statement_that_would_share_a_topic_are_refused() -> None:
    world = World(frozenset({"public.a$b", "public.a#b"}))
    goal = target({"a": "public.a$b", "b": "public.a#b"}, new=["a", "b"])
    with pytest.raises(UpstreamError, match="would share one topic"):
        plan(goal, world.inspect(goal))


def test_two_tables_of_the_lake_may_share_one_upstream_table() -> None:
    world = World(frozenset({"public.a"}))
    goal = target({"a": "public.a", "b": "public.a"}, new=["b"])
    assert plan(goal, world.inspect(goal)).steps


def test_a_topic_that_kafka_does_not_allow_is_refused() -> None:
    capture = replace(CAPTURE, topic_prefix="p" * 240)
    world = World(frozenset({"public.a", "public.ab"}))
    fits, goal = (target({"a": name}, capture=capture, new=["a"]) for name in ("public.a", "public.ab"))
    assert plan(fits, world.inspect(fits)).steps
    with pytest.raises(UpstreamError, match="would have 250 characters") as refusal:
        plan(goal, world.inspect(goal))
    assert refusal.value.code == "topic-too-long"
    assert "TOPIC PREFIX" in refusal.value.hint


@pytest.mark.parametrize(
    ("capture", "granted"),
    [
        (CAPTURE, 'GRANT USAGE ON SCHEMA "Odd" TO u; GRANT SELECT ON "Odd"."my table" TO u;'),
        (OF_MARIADB, "GRANT SELECT ON `Odd`.`my table` TO u;"),
    ],
)
def test_a_table_that_the_user_may_not_read_is_refused(capture: Capture, granted: str) -> None:
    world = World(frozenset({"Odd.my table"}), is_mariadb=capture is OF_MARIADB)
    denied = {"Odd.my table": FoundRelation(PLAIN, may_read=False)}
    goal = target({"a": "Odd.my table"}, capture=capture, new=["a"])
    with pytest.raises(
        UpstreamRefused, match=r'user "u" of source "shop" may not read table "Odd\.my table"'
    ) as refusal:
        plan(goal, replace(world.inspect(goal), relations=denied))
    assert (refusal.value.code, refusal.value.hint) == ("database-refused", granted)


@pytest.mark.parametrize(
    ("kind", "message", "hint"),
    [
        (UNLOGGED, "is an unlogged table", 'ALTER TABLE public."A" SET LOGGED'),
        (TEMPORARY, "is a temporary table", "a table that stays"),
        (OF_DOTTED_SCHEMA, "is a table in a schema with a dot in its name", "without a dot"),
        (VERSIONED, "is a system-versioned table", "ALTER TABLE public.`A` DROP SYSTEM VERSIONING, or leave"),
        (HASHED, "is a table with a unique hash index", "ALTER TABLE public.`A` ADD UNIQUE"),
        (WITHOUT_OVERLAPS, "is a table with a key WITHOUT OVERLAPS", "Give public.`A` another key"),
    ],
)
def test_a_table_that_cannot_be_captured_as_it_is_is_refused_with_the_way_out(
    kind: str, message: str, hint: str
) -> None:
    is_mariadb = kind in TABLE_KINDS
    world = World(frozenset({"public.A"}), is_mariadb=is_mariadb)
    goal = target({"a": "public.A"}, new=["a"], capture=OF_MARIADB if is_mariadb else CAPTURE)
    with pytest.raises(UpstreamError, match=message) as refusal:
        plan(goal, replace(world.inspect(goal), relations={"public.A": FoundRelation(kind)}))
    assert refusal.value.code == "upstream-table-unfit"
    assert hint in refusal.value.hint


LEAF, ROOT = {"l": "public.leaf"}, {"r": "public.root"}


def inspected(world: World, goal: Wanted) -> Found:
    """Return what an inspection finds where `public.leaf` is a partition of `public.root`."""
    found = world.inspect(goal)
    assert found.database is not None
    tables = dict(found.database.tables)
    if "public.leaf" in tables:
        tables["public.leaf"] = FoundTable("f", True, ancestors=("public.middle", "public.root"))
    return replace(found, database=replace(found.database, tables=tables))


@pytest.mark.parametrize(("first", "second", "new"), [(ROOT, LEAF, "l"), (LEAF, ROOT, "r")])
def test_a_partition_beside_its_table_is_refused(first: dict[str, str], second: dict[str, str], new: str) -> None:
    world = World(frozenset({"public.leaf", "public.root"}))
    alone, goal = target(first), target(first | second, new=[new])
    assert plan(alone, inspected(world, alone)).steps
    assert reconcile(world, alone)
    with pytest.raises(UpstreamError, match=r'"public\.leaf" come as those of "public\.root"') as refusal:
        plan(goal, inspected(world, goal))
    assert refusal.value.code == "upstream-table-unfit"
    assert "Capture public.root alone" in refusal.value.hint


@pytest.mark.parametrize(("members", "is_refused"), [({"public.root": "1"}, True), ({"public.leaf": "1"}, False)])
def test_a_partition_that_a_foreign_publication_has_through_its_table_is_refused(
    members: dict[str, str], is_refused: bool
) -> None:
    tables = frozenset({"public.root", "public.leaf"})
    world, goal = World(tables), target(LEAF, new=["l"])
    world.publication = FoundPublication(False, False, tables, tables, members=members)
    if not is_refused:
        assert plan(goal, inspected(world, goal)).steps
        return
    with pytest.raises(UpstreamError, match="come as those of"):
        plan(goal, inspected(world, goal))


def test_a_captured_table_that_became_a_partition_of_another_is_reported() -> None:
    world, goal = World(frozenset({"public.leaf", "public.root"})), target(LEAF | ROOT)
    assert reconcile(world, goal)
    (hint,) = plan(goal, inspected(world, goal)).hints
    assert hint.endswith("come as those of public.root, and none as its own: DROP TABLE shop.l")


def test_a_table_from_which_another_one_inherits_is_refused_or_reported() -> None:
    world, goal = World(frozenset({"public.root"})), target(ROOT)
    refused = target(ROOT, new=[*ROOT])
    with pytest.raises(UpstreamError, match=r'"public\.heir" inherits from "public\.root"') as refusal:
        plan(refused, inherited(world, refused))
    assert refusal.value.code == "upstream-table-unfit"
    assert refusal.value.hint.startswith("ALTER TABLE public.heir NO INHERIT public.root.")
    assert reconcile(world, goal)
    (hint,) = plan(goal, inherited(world, goal)).hints
    assert hint.startswith(
        "table public.heir inherits from public.root: a snapshot of public.root brings its rows, too"
    )


def inherited(world: World, wanted: Wanted) -> Found:
    """Return what exists, with a table that inherits from `public.root`."""
    found = world.inspect(wanted)
    assert found.database is not None
    root = replace(found.database.tables["public.root"], heirs=("public.heir",))
    return replace(found, database=replace(found.database, tables={"public.root": root}))
