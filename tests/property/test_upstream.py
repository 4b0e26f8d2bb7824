"""The upstream matches the definitions in the end, whatever is declared and dropped, and wherever the work is interrupted.

Every table has had its own snapshot or was in the first one.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehold.upstream.found.found import OPERATIONS
from lakehold.upstream.plan.capture_plan import plan_resnapshot
from lakehold.upstream.wanted.wanted import Wanted
from tests.upstream_meddling import SIGNAL_TABLE
from tests.upstream_world import CAPTURE, OF_MARIADB, World, reconcile, target

TABLES = ("public.a", "public.b", "public.c")
OUT = {
    "unpublish": World.unpublish,
    "republish": World.republish,
    "leave out": World.leave_out,
    "narrow": World.narrow,
    "restrict": World.restrict,
    "restrict for a while": World.restrict_for_a_while,
}
_INGESTS = 3
"""One ingest for existing messages, one for the snapshot of the missed changes, and one for the next snapshot."""


def assert_as_declared(world: World, declared: dict[str, str]) -> None:
    goal = _goal(world, declared)
    names = set(declared.values())
    if not names:
        left = (world.config, world.slot, world.publication, world.signal_table, world.topics)
        assert left == (None, None, None, None, set())
        return
    assert world.state == "RUNNING"
    assert world.captured() == names
    if not world.is_mariadb:
        assert world.publication is not None
        assert world.publication.tables == names | {SIGNAL_TABLE}
        assert world.publication.operations == OPERATIONS
        assert not world.publication.narrowed
    assert world.topics == {topic.name for topic in goal.topics}
    assert names <= world.snapshotted
    assert not world.missed & names
    assert not world.gone & names
    for object_id in declared:
        snapshot = world.snapshots[object_id]
        assert snapshot.is_first or snapshot.succeeded


actions = st.lists(
    st.tuples(
        st.sampled_from(["create", "create", "drop", "drift", *OUT, "resnapshot", "ingest", "lag", "unmark"]),
        st.sampled_from(TABLES),
        st.none() | st.integers(0, 12),
    ),
    max_size=8,
)


def _goal(world: World, declared: dict[str, str], released: Sequence[str] = ()) -> Wanted:
    return target(declared, released, capture=OF_MARIADB if world.is_mariadb else CAPTURE)


@pytest.mark.parametrize("is_mariadb", [False, True])
@given(actions)
def test_the_upstream_becomes_as_declared_wherever_the_work_was_interrupted(
    is_mariadb: bool, history: list[tuple[str, str, int | None]]
) -> None:
    world = World(frozenset(TABLES), is_mariadb=is_mariadb)
    declared: dict[str, str] = {}
    for number, (action, table, cut_after) in enumerate(history):
        if action == "create":
            declared[f"{table}#{number}"] = table
            reconcile(world, _goal(world, declared), cut_after)
        elif action == "drop" and (dropped := [i for i, name in declared.items() if name == table]):
            left = {i: name for i, name in declared.items() if i != dropped[0]}
            # An interrupted statement is run again: upstream objects are removed before their definitions.
            reconcile(world, _goal(world, left, [table]), cut_after)
            reconcile(world, _goal(world, left, [table]))
            declared = left
        elif action == "drift" and world.config is not None:
            world.config = {**world.config, "snapshot.mode": "never"}
            world.topics.discard(CAPTURE.topic(table))
        elif action == "unmark":
            world.drop_signal_table()
            if declared:
                reconcile(world, _goal(world, declared), cut_after)
        elif action in OUT and declared and world.is_capturing:
            (World.leave_out if is_mariadb else OUT[action])(world, table)
            reconcile(world, _goal(world, declared), cut_after)
        elif action == "resnapshot" and declared and world.config is not None:
            for step in plan_resnapshot(_goal(world, declared), world.inspect(_goal(world, declared))).steps[
                :cut_after
            ]:
                world.apply_step(step)
        elif action == "ingest":
            world.ingest()
        elif action == "lag" and table in world.snapshotted:
            world.unread.add(table)
    for _ in range(_INGESTS):
        reconcile(world, _goal(world, declared))
        world.ingest()
    assert reconcile(world, _goal(world, declared))
    assert_as_declared(world, declared)
