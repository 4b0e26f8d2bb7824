"""Tables that would lose large values which updates leave as they are: refused when declared, named later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.errors import UpstreamError
from lakehold.upstream.found.columns import FoundColumn, FoundType, TypeKind
from lakehold.upstream.found.found import FULL, Found, FoundLeaf, FoundTable
from lakehold.upstream.plan.capture_plan import plan
from lakehold.upstream.report.hints import fault_hints
from lakehold.upstream.wanted.wanted import Wanted
from tests.upstream_world import World, reconcile, target

TABLES = {"t": "public.T"}
KEY = FoundColumn("id", "integer", FoundType("int4", "integer"), is_key=True)


def column(name: str, text: str, storage: str = "x", kind: TypeKind = TypeKind.PLAIN) -> FoundColumn:
    """Return a column `c` whose type, or whose elements' type, is `name` in the catalogue."""
    element = text.removesuffix("[]")
    return FoundColumn("c", text, FoundType(name, element, kind), is_array=element != text, storage=storage)


def goal_of(*, new: bool, needs_before: bool = False, columns: tuple[str, ...] = ()) -> Wanted:
    goal = target(TABLES, new=[*TABLES] if new else None)
    return replace(goal, tables=tuple(replace(t, needs_before=needs_before, columns=columns) for t in goal.tables))


def inspected(world: World, goal: Wanted, of: FoundColumn, identity: str = "d", *leaves: FoundLeaf) -> Found:
    """Return what an inspection finds where the table has the column `of`."""
    world.columns = {"public.T": (KEY, of)}
    found = world.inspect(goal)
    assert found.database is not None
    tables = {**found.database.tables, "public.T": FoundTable(identity, has_key=True, leaves=leaves)}
    return replace(found, database=replace(found.database, tables=tables))


def test_a_table_that_would_lose_large_values_is_refused_until_its_rows_are_logged_whole() -> None:
    world, goal = World(frozenset({"public.T"})), goal_of(new=True)
    of = column("float8", "double precision[]")
    with pytest.raises(UpstreamError, match=r"large values of c \(double precision\[\]\)") as refusal:
        plan(goal, inspected(world, goal, of))
    assert refusal.value.code == "replica-identity"
    assert 'ALTER TABLE public."T" REPLICA IDENTITY FULL; then create the table again' in refusal.value.hint
    assert 'ALTER TABLE public."T" ALTER c SET STORAGE PLAIN' in refusal.value.hint
    assert plan(goal, inspected(world, goal, of, FULL)).steps
    for other in (goal_of(new=True, needs_before=True), goal_of(new=True, columns=("id",))):
        assert plan(other, inspected(world, other, of)).steps


def test_a_partition_that_is_added_later_is_named() -> None:
    world, goal = World(frozenset({"public.T"})), goal_of(new=False)
    assert reconcile(world, goal)
    leaves = FoundLeaf("public.whole", FULL), FoundLeaf("public.late", "d")
    found = inspected(world, goal, column("path", "path"), "d", *leaves)
    (hint,) = fault_hints(goal, found)
    assert hint.startswith(
        "large values of c (path) in table public.T become null when an update leaves them as they are"
    )
    assert "ALTER TABLE public.late REPLICA IDENTITY FULL" in hint
    assert "public.whole" not in hint
    assert hint.endswith("ALTER SOURCE shop RESNAPSHOT")
    assert hint in plan(goal, found).hints


@pytest.mark.parametrize(
    "of",
    [
        column("float8", "double precision[]", "p"),
        column("text", "text[]"),
        column("bytea", "bytea"),
        column("numeric", "numeric", "m"),
        column("varbit", "bit varying(128)"),
        column("money", "money[]"),
        column("mood", "mood", kind=TypeKind.ENUM),
    ],
    ids=lambda of: f"{of.text} {of.storage}",
)
def test_columns_whose_values_always_arrive_keep_no_table_out(of: FoundColumn) -> None:
    world, goal = World(frozenset({"public.T"})), goal_of(new=True)
    assert plan(goal, inspected(world, goal, of)).steps


@pytest.mark.parametrize(
    "of",
    [
        column("varbit", "bit varying"),
        column("bit", "bit(129)"),
        column("text", "text[]", kind=TypeKind.DOMAIN),
        column("vector", "vector(1536)", "e"),
    ],
    ids=lambda of: of.text,
)
def test_columns_of_types_without_a_placeholder_keep_a_table_out(of: FoundColumn) -> None:
    world, goal = World(frozenset({"public.T"})), goal_of(new=True)
    with pytest.raises(UpstreamError, match="would lose large values of c"):
        plan(goal, inspected(world, goal, of))
