"""Rows that changed in PostgreSQL without an event: lakehold finds their tables by the catalogue, and snapshots them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lakehold.upstream.differences.silent_changes import SilentChange, filled_columns, shape_to_record, silent_change
from lakehold.upstream.found.shapes import Shape
from lakehold.upstream.plan.capture_plan import plan
from lakehold.upstream.plan.capture_steps import RecordMembers, RecordMissed, RecordShapes, Repeat, RequestSnapshot
from tests.upstream_meddling import SIGNAL_TABLE
from tests.upstream_world import CAPTURE, World, reconcile, target


def shape(**differing: Any) -> Shape:
    """Return the shape of a partitioned table with two columns and an enum, but for some parts."""
    columns = differing.get("columns", {"1": ["id", "700", True, True], "2": ["n", "700", False, True]})
    return {
        "table": "1",
        "name": ["10", "700"],
        "columns": columns,
        "records": {
            "columns": {number: [xmin, [name, default]] for number, (name, xmin, default, _) in columns.items()}
        },
        "files": {"5": ["5", "51"], "6": ["6", "61"]},
        "partitions": {"5": True, "6": True},
        "labels": {"8": "happy"},
        **differing,
    }


def columns(**changed: list[Any]) -> Mapping[str, list[Any]]:
    return {**shape()["columns"], **{number.removeprefix("c"): column for number, column in changed.items()}}


NOTHING = {
    "a column is added": shape(columns=columns(c3=["x", "701", False, True])),
    "a column with a default is written into all rows": shape(
        columns=columns(c3=["x", "701", True, True]), files={"5": ["7", "71"], "6": ["8", "81"]}
    ),
    "a column is dropped": shape(columns={"1": ["id", "700", True, True]}),
    "a column is renamed": shape(columns=columns(c2=["m", "701", False, True])),
    "a column is dropped, and another one added": shape(
        columns={"1": ["id", "700", True, True], "3": ["x", "701", False, True]}
    ),
    "a default is set": shape(columns=columns(c2=["n", "701", True, True])),
    "a new partition": shape(
        partitions={"5": True, "6": True, "7": True}, files={**shape()["files"], "7": ["7", "71"]}
    ),
    "another owner": shape(name=["11", "701"]),
    "a new label": shape(labels={"8": "happy", "9": "sad"}),
}
VALUES = {
    "the type of a column": shape(
        columns=columns(c2=["n", "701", False, True]), files={"5": ["7", "71"], "6": ["6", "61"]}
    ),
    "a dropped column is added again": shape(columns={"1": ["id", "700", True, True], "3": ["n", "701", False, True]}),
    "two columns swap their names": shape(columns={"1": ["n", "701", True, True], "2": ["id", "701", False, True]}),
    "a column had another name, or another column's, for a while": shape(
        columns=columns(c2=["n", "701", False, False])
    ),
    "two columns are renamed": shape(columns={"1": ["a", "701", True, True], "2": ["b", "701", False, True]}),
    "one is dropped, and another one added and perhaps renamed": shape(
        columns={"1": ["id", "700", True, True], "3": ["x", "701", False, False]}
    ),
    "one is dropped, and another one renamed": shape(columns={"2": ["x", "701", False, False]}),
    "one is renamed, and another one added and perhaps renamed": shape(
        columns=columns(c2=["m", "701", False, False], c3=["x", "701", False, False])
    ),
    "a column has values in old rows only": shape(
        columns=columns(c3=["x", "701", False, True]), files={"5": ["7", "71"], "6": ["8", "81"]}
    ),
    "a label is renamed": shape(labels={"8": "glad"}),
}
ROWS = {
    "another table": shape(table="2"),
    "another name for a while": shape(name=["10", "701"]),
    "a partition is detached": shape(partitions={"5": True}, files={"5": ["5", "51"]}),
    "a table is attached": shape(
        partitions={"5": True, "6": True, "7": False}, files={**shape()["files"], "7": ["7", "71"]}
    ),
    "a partition is truncated": shape(files={"5": ["7", "51"], "6": ["6", "61"]}),
}


@pytest.mark.parametrize(
    ("now", "change"),
    [
        *[pytest.param(now, None, id=name) for name, now in NOTHING.items()],
        *[pytest.param(now, SilentChange.VALUES, id=name) for name, now in VALUES.items()],
        *[pytest.param(now, SilentChange.ROWS, id=name) for name, now in ROWS.items()],
    ],
)
def test_the_catalogue_shows_what_happened_to_rows(now: Shape, change: SilentChange | None) -> None:
    assert silent_change(shape(), now) is change
    assert silent_change(now, now) is None


@pytest.mark.parametrize("number", ["2", "3", "4"])
def test_a_name_that_was_given_up_long_ago_comes_back(number: str) -> None:
    renamed = shape(columns=columns(c2=["m", "701", False, False]))
    recorded = shape_to_record(shape(), renamed)
    assert silent_change(recorded, renamed) is None
    later = shape_to_record(recorded, shape(columns={**renamed["columns"], "4": ["x", "702", False, True]}))
    again = shape(columns={**later["columns"], number: ["n", "703", False, False]})
    assert silent_change(later, again) is (None if number == "2" else SilentChange.VALUES)
    assert "gone" not in shape_to_record(recorded, shape(table="2"))


def test_a_column_whose_default_is_gone_may_still_have_its_values_in_older_rows() -> None:
    added, dropped = (
        shape(columns=columns(c3=["x", "701", True, True])),
        shape(columns=columns(c3=["x", "702", False, False])),
    )
    assert filled_columns(None) == frozenset()
    assert filled_columns(shape_to_record(shape(), added)) == {"1", "3"}
    recorded = shape_to_record(shape_to_record(shape(), added), dropped)
    assert silent_change(added, dropped) is None, "its first message leads to a snapshot"
    assert filled_columns(recorded) == {"1", "3"}
    assert shape_to_record(recorded, dropped) == recorded
    assert filled_columns(shape_to_record(recorded, shape())) == {"1"}, "the column is dropped"
    assert filled_columns(shape_to_record(recorded, {**dropped, "table": "2"})) == {"1"}, "another table has other rows"
    vacuumed = plain(files={"1": ["7", "21"]}, columns=dropped["columns"])
    assert silent_change(plain(), vacuumed) is SilentChange.VALUES, "no inspection saw the default"


def test_a_truncated_table_has_an_event_a_vacuumed_one_its_rows_and_short_values_do_not_show_how_files_were_written() -> (
    None
):
    assert silent_change(plain(), plain(files={"1": ["7", "21"]})) is None
    short = plain(files={"1": ["1", None]})
    rewritten = plain(files={"1": ["7", None]}, columns=columns(c2=["n", "701", False, True]))
    assert silent_change(short, rewritten) is SilentChange.VALUES


def plain(**differing: Any) -> Shape:
    """Return the shape of a table without partitions."""
    return shape(**{"files": {"1": ["1", "21"]}, "partitions": {}, **differing})


A = {"a1": "public.a"}


@pytest.fixture
def world() -> World:
    """Return a database whose table `public.a` is captured, and has a shape."""
    world = World(frozenset({"public.a"}), shapes={"public.a": shape()})
    assert reconcile(world, target(A))
    return world


def test_a_table_is_recorded_with_its_shape_when_it_is_captured(world: World) -> None:
    assert world.recorded_shapes == world.shapes
    assert world.repeats == {}
    world.recorded_shapes.clear()
    goal = target(A)
    assert plan(goal, world.inspect(goal)).steps == (RecordShapes("shop", "s1", world.shapes),)
    assert reconcile(world, goal)


@pytest.mark.parametrize(("now", "confirms"), [(VALUES["a label is renamed"], True), (ROWS["another table"], False)])
def test_a_table_whose_rows_changed_silently_is_snapshotted_again(world: World, now: Shape, confirms: bool) -> None:
    world.shapes = {"public.a": now}
    goal = target(A)
    planned = plan(goal, world.inspect(goal))
    repeat = Repeat(CAPTURE.topic("public.a"), {"a1": "shop.a1"}, None if confirms else {}, confirms)
    assert planned.steps == (
        RequestSnapshot("shop", "public.a", "a1", repeat, SIGNAL_TABLE),
        RecordShapes("shop", "s1", world.shapes),
    )
    (hint,) = planned.hints
    assert hint.startswith("changes of public.a were missed (")
    reconcile(world, goal, 1)
    assert plan(goal, world.inspect(goal)).steps[-1] == RecordShapes("shop", "s1", world.shapes)
    assert reconcile(world, goal)
    assert plan(goal, world.inspect(goal)).steps == ()


def test_a_table_without_a_key_is_recorded_as_lacking_changes(world: World) -> None:
    world.keyless = frozenset({"public.a"})
    world.shapes = {"public.a": VALUES["a label is renamed"]}
    goal = target(A)
    planned = plan(goal, world.inspect(goal))
    assert planned.steps == (RecordMissed("shop", A), RecordShapes("shop", "s1", world.shapes))
    assert "ALTER SOURCE shop RESNAPSHOT" in planned.hints[0]


def test_a_table_out_of_the_publication_is_snapshotted_once(world: World) -> None:
    world.shapes = {"public.a": ROWS["another name for a while"]}
    world.republish("public.a")
    goal = target(A)
    steps = plan(goal, world.inspect(goal)).steps
    assert [type(step) for step in steps if isinstance(step, RequestSnapshot | RecordMembers | RecordShapes)] == [
        RequestSnapshot,
        RecordMembers,
    ]


def test_a_table_dropped_upstream_has_no_shape_to_record(world: World) -> None:
    world.shapes = {}
    goal = target(A)
    assert not any(isinstance(step, RecordShapes) for step in plan(goal, world.inspect(goal)).steps)
