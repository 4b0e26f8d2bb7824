"""Partitions of PostgreSQL that log too little or nothing are named before a table is published, and when one is added later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.errors import UpstreamError
from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.found.found import FULL, NOTHING, OTHER_COLUMNS, UNLOGGED, Found, FoundLeaf, FoundTable
from lakehold.upstream.plan.capture_plan import plan
from lakehold.upstream.report.hints import fault_hints, misidentified_hints
from lakehold.upstream.wanted.wanted import Wanted
from tests.upstream_world import World, reconcile, target

ROOT = {"r": "public.root"}
SETTING = "PostgreSQL logs by the setting of each partition, and a new one does not take it from its table"


def inspected(world: World, goal: Wanted, *leaves: FoundLeaf, has_key: bool = True) -> Found:
    """Return what an inspection finds where `public.root` has partitions."""
    found = world.inspect(goal)
    assert found.database is not None
    weakest = min((leaf.replica_identity for leaf in leaves if not leaf.unlogged), key="nidf".index)
    root = FoundTable(weakest, has_key, leaves=leaves)
    return replace(found, database=replace(found.database, tables={**found.database.tables, "public.root": root}))


def test_a_table_with_partitions_that_nobody_could_update_is_not_published() -> None:
    world, goal = World(frozenset({"public.root"}), keyless=frozenset({"public.root"})), target(ROOT, new=[*ROOT])
    leaves = (FoundLeaf("public.Odd", NOTHING), FoundLeaf("public.whole", FULL))
    with pytest.raises(UpstreamError, match=r'partitions of table "public\.root" have no replica identity') as refusal:
        plan(goal, inspected(world, goal, *leaves, has_key=False))
    assert refusal.value.code == "replica-identity"
    assert refusal.value.hint == (
        f'ALTER TABLE public."Odd" REPLICA IDENTITY FULL. {SETTING}; then create the table again.'
    )


def test_a_partition_that_is_added_later_is_reported_before_one_of_its_rows_changes() -> None:
    world, goal = World(frozenset({"public.root"})), target(ROOT)
    whole = FoundLeaf("public.a", FULL)
    assert reconcile(world, goal)
    assert plan(goal, inspected(world, goal, whole)).hints == ()
    found = inspected(world, goal, whole, FoundLeaf("public.b", "d"))
    hint = (
        "updates of some partitions of table public.root lack the row before: "
        f"ALTER TABLE public.b REPLICA IDENTITY FULL. {SETTING}"
    )
    assert plan(goal, found).hints == (hint,)
    assert [*fault_hints(goal, found)] == [hint]


def _with_identity(world: World, goal: Wanted, identity: str, *leaves: FoundLeaf) -> Found:
    found = world.inspect(goal)
    assert found.database is not None
    table = FoundTable(identity, has_key=True, leaves=leaves)
    columns = tuple(FoundColumn(n, "integer", FoundType("int4", "integer"), is_key=n == "id") for n in ("id", "code"))
    database = replace(found.database, tables={**found.database.tables, "public.root": table})
    return replace(found, database=database, columns={"public.root": columns})


@pytest.mark.parametrize(
    ("leaves", "of", "way_out"),
    [
        ((), "", "ALTER TABLE public.root REPLICA IDENTITY FULL"),
        (
            (FoundLeaf("public.a", FULL), FoundLeaf("public.b", OTHER_COLUMNS)),
            "partitions of ",
            f"ALTER TABLE public.b REPLICA IDENTITY FULL. {SETTING}",
        ),
    ],
)
def test_an_index_that_lacks_columns_of_the_key_identifies_no_deleted_row(
    leaves: tuple[FoundLeaf, ...], of: str, way_out: str
) -> None:
    world, goal, new = World(frozenset({"public.root"})), target(ROOT), target(ROOT, new=[*ROOT])
    with pytest.raises(UpstreamError, match=f'{of}table "public.root" logs? other columns than the key') as refusal:
        plan(new, _with_identity(world, new, OTHER_COLUMNS, *leaves))
    assert refusal.value.code == "replica-identity"
    assert refusal.value.hint == f"{way_out}; then create the table again."
    assert reconcile(world, goal)
    found = _with_identity(world, goal, OTHER_COLUMNS, *leaves)
    (hint,) = (hint for hint in fault_hints(goal, found) if hint.startswith("deletes of "))
    assert hint in plan(goal, found).hints
    assert hint.endswith(f"{way_out}; then ALTER SOURCE shop RESNAPSHOT")
    # The lake has a key of its own, whose columns come from the row before.
    keyed = replace(new, tables=tuple(replace(table, key=("code",)) for table in new.tables))
    assert not [*misidentified_hints(keyed, _with_identity(world, keyed, OTHER_COLUMNS, *leaves))]
    plan(keyed, _with_identity(world, keyed, OTHER_COLUMNS, *leaves))
    plan(new, _with_identity(world, new, "i"))


def test_of_many_partitions_some_are_named() -> None:
    world, goal = World(frozenset({"public.root"})), target(ROOT)
    assert reconcile(world, goal)
    leaves = [FoundLeaf(f"public.p{number}", "d") for number in range(9)]
    (hint,) = plan(goal, inspected(world, goal, *leaves)).hints
    assert "public.p4 REPLICA IDENTITY FULL; and 4 more partitions alike. PostgreSQL" in hint
    assert "p5" not in hint


@pytest.mark.parametrize(
    ("leaf", "kind", "way_out"),
    [
        (FoundLeaf("public.Odd", FULL, UNLOGGED), "an unlogged table", 'ALTER TABLE public."Odd" SET LOGGED'),
        (FoundLeaf("public.far", "d", "foreign table"), "a foreign table", "ALTER TABLE … DETACH PARTITION public.far"),
    ],
)
def test_a_partition_whose_changes_are_not_logged_is_refused_or_reported(
    leaf: FoundLeaf, kind: str, way_out: str
) -> None:
    world, goal = World(frozenset({"public.root"})), target(ROOT)
    leaves = (FoundLeaf("public.whole", FULL), leaf)
    refused = target(ROOT, new=[*ROOT])
    with pytest.raises(UpstreamError, match=rf'"{leaf.name}" of "public\.root" is {kind}') as refusal:
        plan(refused, inspected(world, refused, *leaves))
    assert refusal.value.code == "upstream-table-unfit"
    assert refusal.value.hint == f"{way_out}."
    assert reconcile(world, goal)
    (hint,) = plan(goal, inspected(world, goal, *leaves)).hints
    assert hint.startswith(f"partition {leaf.name} of public.root is {kind}: a snapshot brings its rows")
    assert hint.endswith(way_out)
    assert [*fault_hints(goal, inspected(world, goal, *leaves))] == [hint]
