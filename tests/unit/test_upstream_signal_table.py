"""The table where the connector marks what it reads of one that joins: it is made where it can be had, and gone without else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakehold.upstream.connector_config import signal_table_of
from lakehold.upstream.found import FoundPublication, FoundSignalTable
from lakehold.upstream.plan import plan
from lakehold.upstream.steps import (
    ChangePublication,
    CreateSignalTable,
    DropSignalTable,
    ResumeConnector,
    StopConnector,
)
from tests.upstream_world import SIGNAL_TABLE, World, converge, target

A, B = {"a1": "public.a"}, {"b1": "public.b"}
CREATE = CreateSignalTable(SIGNAL_TABLE, "p")


@pytest.fixture
def world() -> World:
    """A database without a publication."""
    return World(frozenset({"public.a", "public.b"}))


def _marks(world: World) -> str | None:
    return (world.config or {}).get("signal.data.collection")


def test_it_is_made_with_the_first_table_and_goes_with_the_source(world: World) -> None:
    goal = target(A)
    assert CREATE in plan(goal, world.look(goal)).steps
    assert converge(world, goal)
    assert _marks(world) == SIGNAL_TABLE
    gone = target({}, released=["public.a"])
    assert DropSignalTable(SIGNAL_TABLE) in plan(gone, world.look(gone)).steps


def test_one_that_the_user_does_not_own_is_used_and_stays(world: World) -> None:
    world.signal_table = FoundSignalTable(is_owned=False)
    world.publication = FoundPublication(is_own=False, is_for_all=False, tables=frozenset({"public.a", SIGNAL_TABLE}))
    world.may_publish = world.may_make_signal_table = False
    goal = target(A)
    assert CREATE not in plan(goal, world.look(goal)).steps
    assert converge(world, goal)
    assert _marks(world) == SIGNAL_TABLE
    gone = target({}, released=["public.a"])
    assert DropSignalTable(SIGNAL_TABLE) not in plan(gone, world.look(gone)).steps


@pytest.mark.parametrize("lost", ["table", "membership"])
def test_one_that_is_lost_is_made_again_while_the_connector_stands(world: World, lost: str) -> None:
    goal = target(A)
    assert converge(world, goal)
    if lost == "table":
        world.drop_signal_table()
    else:
        assert world.publication is not None
        world.publish(world.publication.tables - {SIGNAL_TABLE})
    assert plan(goal, world.look(goal)).steps == (StopConnector("shop"), CREATE, ResumeConnector("shop"))
    assert converge(world, goal)


@pytest.mark.parametrize("denied", ["make", "publish", "write"])
def test_where_it_cannot_be_had_tables_join_without_and_that_is_told(world: World, denied: str) -> None:
    if denied == "make":
        world.may_make_signal_table = False
    elif denied == "publish":
        world.may_publish = False
        world.publication = FoundPublication(is_own=False, is_for_all=False, tables=frozenset(world.tables))
    else:
        world.signal_table = FoundSignalTable(may_write=False)
    assert converge(world, target(A))
    assert _marks(world) is None
    goal = target(A | B, new=["b1"])
    (hint,) = plan(goal, world.look(goal)).hints
    assert hint.startswith(f"user u can have no signal table {SIGNAL_TABLE} in the database")
    assert converge(world, goal)
    assert plan(goal, world.look(goal)).hints == (), "it has joined"


def test_rights_that_are_granted_later_are_used(world: World) -> None:
    world.may_make_signal_table = False
    goal = target(A)
    assert converge(world, goal)
    world.may_make_signal_table = True
    assert CREATE in plan(goal, world.look(goal)).steps
    assert converge(world, goal)
    assert _marks(world) == SIGNAL_TABLE
    world.may_make_signal_table = False
    assert plan(goal, world.look(goal)).steps == (), "it is there"


def test_a_publication_for_all_tables_has_it(world: World) -> None:
    world.publication = FoundPublication(is_own=False, is_for_all=True, tables=frozenset({"public.a"}))
    goal = target(A)
    assert CreateSignalTable(SIGNAL_TABLE, None) in plan(goal, world.look(goal)).steps


def test_it_is_not_taken_for_a_table_that_was_released(world: World) -> None:
    both = target(A | B)
    assert converge(world, both)
    assert world.publication is not None
    world.publication = replace(world.publication, is_own=True)
    left = target(A, released=["public.b"])
    steps = plan(left, world.look(left)).steps
    assert ChangePublication("p", (), ("public.b",)) in steps


def test_its_name_is_one_that_postgresql_takes_without_quotes() -> None:
    assert signal_table_of("9") == "lakehold_signals.of_9"
    _, name = signal_table_of("s" * 63).split(".")
    assert len(name) == 63
