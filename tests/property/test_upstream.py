"""Whatever is declared and dropped, and wherever the work is cut short: in the end what is upstream is what is declared,
and every table has had a snapshot of its own or was in the first one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lakehold.catalog.definitions import Entry
from lakehold.definitions import Capture, ConnectionType, Envelope, Format, FormatType, Source, Table
from lakehold.ingest.read.kafka_options import KafkaOptions
from lakehold.upstream.connector_config import Login, json
from lakehold.upstream.places import ConnectAddress, Places
from lakehold.upstream.plan import plan, plan_anew
from lakehold.upstream.steps import CreateConnector
from lakehold.upstream.wanted import Wanted, wanted
from tests.upstream_world import World

TABLES = ("public.a", "public.b", "public.c")
CAPTURE = Capture(ConnectionType.POSTGRES, "pg", "connect", "shop", "p", "s")
SOURCE = Entry(
    "s1", Source("shop", Format(FormatType.JSON), "kafka", transaction_topic="shop.transaction", capture=CAPTURE), "", 0
)
PLACES = Places(
    Login("db", 5432, "u", "secret", "shop"), ConnectAddress("http://c"), KafkaOptions("k:1", {}, {}), None, json()
)
_ROUNDS = 6


def target(declared: dict[str, str], released: Sequence[str] = (), passed: int | None = None) -> Wanted:
    """What tables, by object id, want upstream."""
    entries = [
        Entry(
            object_id,
            Table("shop", object_id, "shop", CAPTURE.topic(name), Envelope.DEBEZIUM, upstream=name),
            "",
            0,
        )
        for object_id, name in declared.items()
    ]
    return wanted(SOURCE, CAPTURE, entries, PLACES, passed=passed, released=[CAPTURE.topic(n) for n in released])


def converge(world: World, goal: Wanted, cut_after: int | None = None) -> bool:
    """As `lakehold.upstream.capturing` does, cut short after so many steps; whether it came to its end."""
    done = 0
    for _ in range(_ROUNDS):
        steps = plan(goal, world.look(goal)).steps
        if not steps:
            return True
        for step in steps:
            if done == cut_after:
                return False
            world.perform(step)
            done += 1
            if isinstance(step, CreateConnector):
                break
    raise AssertionError("it does not come to rest")


def assert_as_declared(world: World, declared: dict[str, str]) -> None:
    goal = target(declared)
    names = set(declared.values())
    if not names:
        assert (world.config, world.slot, world.publication, world.topics) == (None, None, None, set())
        return
    assert world.state == "RUNNING"
    assert world.captured() == names
    assert world.publication is not None
    assert world.publication.tables == names
    assert world.topics == {topic.name for topic in goal.topics}
    assert names <= world.snapshotted
    for object_id in declared:
        snapshot = world.snapshots[object_id]
        assert snapshot.is_first or snapshot.succeeded


actions = st.lists(
    st.tuples(
        st.sampled_from(["create", "create", "drop", "drift", "resnapshot"]),
        st.sampled_from(TABLES),
        st.none() | st.integers(0, 12),
    ),
    max_size=8,
)


@given(actions)
def test_upstream_comes_to_what_is_declared_wherever_it_was_cut_short(
    history: list[tuple[str, str, int | None]],
) -> None:
    world = World(frozenset(TABLES))
    declared: dict[str, str] = {}
    for number, (action, table, cut_after) in enumerate(history):
        if action == "create":
            declared[f"{table}#{number}"] = table
            converge(world, target(declared), cut_after)
        elif action == "drop" and (dropped := [i for i, name in declared.items() if name == table]):
            left = {i: name for i, name in declared.items() if i != dropped[0]}
            # Cut short, the statement is run again: what goes is taken away before it is forgotten.
            converge(world, target(left, [table]), cut_after)
            converge(world, target(left, [table]))
            declared = left
        elif action == "drift" and world.config is not None:
            world.config = {**world.config, "snapshot.mode": "never"}
            world.topics.discard(CAPTURE.topic(table))
        elif action == "resnapshot" and declared and world.config is not None:
            for step in plan_anew(target(declared), world.look(target(declared))).steps[:cut_after]:
                world.perform(step)
    converge(world, target(declared))
    assert_as_declared(world, declared)
