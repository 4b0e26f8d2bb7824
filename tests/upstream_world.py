"""A small model of a database, Kafka and Kafka Connect with Debezium: what steps do to them, and what a look finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from lakehold.catalog.definitions import Entry
from lakehold.definitions import Capture, ConnectionType, Envelope, Format, FormatType, Source, Table
from lakehold.ingest.read.kafka_options import KafkaOptions
from lakehold.upstream.connect import ConnectorStatus
from lakehold.upstream.connector_config import Login, SideTopics, json
from lakehold.upstream.found import (
    NO_SNAPSHOT,
    Found,
    FoundConnector,
    FoundDatabase,
    FoundPublication,
    FoundSnapshot,
    FoundTable,
)
from lakehold.upstream.places import ConnectAddress, Places
from lakehold.upstream.plan import plan
from lakehold.upstream.steps import (
    AskSnapshot,
    ChangePublication,
    ConfigureConnector,
    CreateConnector,
    CreatePublication,
    CreateTopic,
    DeleteConnector,
    DeleteTopics,
    DropPublication,
    DropSlot,
    ForgetPosition,
    NoteFirstSnapshot,
    RestartConnector,
    ResumeConnector,
    Step,
    StopConnector,
)
from lakehold.upstream.wanted import Wanted, wanted

CAPTURE = Capture(ConnectionType.POSTGRES, "pg", "connect", "shop", "p", "s")
SOURCE = Entry("s1", Source("shop", Format(FormatType.JSON), "kafka", capture=CAPTURE), "", 0)
PLACES = Places(
    Login("db", 5432, "u", "secret", "shop"), ConnectAddress("http://c"), KafkaOptions("k:1", {}, {}), None, json()
)
_ROUNDS = 6


def target(
    declared: Mapping[str, str],
    released: Sequence[str] = (),
    passed: int | None = None,
    capture: Capture = CAPTURE,
    new: Sequence[str] | None = None,
) -> Wanted:
    """What tables, by object id, want upstream; `new` are those that a statement declares."""
    entries = [
        Entry(object_id, Table("shop", object_id, "shop", capture.topic(name), Envelope.DEBEZIUM, upstream=name), "", 0)
        for object_id, name in declared.items()
    ]
    topics = [capture.topic(name) for name in released]
    about = None if new is None else frozenset(new)
    return wanted(SOURCE, capture, entries, PLACES, passed=passed, released=topics, declared=about)


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


@dataclass
class World:
    """One database with tables, and what captures it.

    Attributes:
        tables: The database's.
        snapshotted: Tables of which the connector took a snapshot since its topic was last made.
        keyless: Tables without a primary key.
        missed: Tables that changed while the connector did not capture them, and had no snapshot since.
    """

    tables: frozenset[str]
    config: dict[str, str] | None = None
    state: str = "STOPPED"
    has_position: bool = False
    slot: str | None = None
    publication: FoundPublication | None = None
    topics: set[str] = field(default_factory=set)
    snapshots: dict[str, FoundSnapshot] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    snapshotted: set[str] = field(default_factory=set)
    keyless: frozenset[str] = frozenset()
    missed: set[str] = field(default_factory=set)
    position: int = 1_000
    trace: str = ""

    def captured(self) -> set[str]:
        """What the connector captures."""
        return set((self.config or {}).get("table.include.list", "").replace("\\", "").split(",")) - {""}

    @property
    def is_capturing(self) -> bool:
        """Whether there is what somebody may take a table from."""
        return self.config is not None and self.publication is not None

    def unpublish(self, table: str) -> None:
        """Somebody takes a table from the publication, and it changes."""
        assert self.publication is not None
        published = self.publication.tables - {table}
        self.publication = replace(self.publication, tables=published, listed=published)
        self._change_unseen(table)

    def leave_out(self, table: str) -> None:
        """Somebody takes a table from the connector's list, and it changes."""
        assert self.config is not None
        left = sorted(self.captured() - {table})
        self.config = {**self.config, "table.include.list": ",".join(name.replace(".", "\\.") for name in left)}
        self._change_unseen(table)

    def _change_unseen(self, table: str) -> None:
        if table in self.snapshotted:
            self.missed.add(table)

    def look(self, wanted: Wanted) -> Found:
        connector = None
        if self.config is not None:
            tasks = () if self.state == "STOPPED" else ("FAILED",) if self.trace else ("RUNNING",)
            connector = FoundConnector(
                dict(self.config), ConnectorStatus(self.state, tasks, self.trace), self.has_position
            )
        names = {topic.name for topic in wanted.topics} | set(wanted.released)
        database = FoundDatabase(
            "logical",
            self.position,
            self.publication,
            "reserved" if self.slot == wanted.capture.slot else None,
            {name: FoundTable("f", name not in self.keyless) for name in wanted.upstream_tables if name in self.tables},
            tuple(sorted(self.tables - set(wanted.upstream_tables))),
        )
        return Found(connector, frozenset(names & self.topics), dict(self.snapshots), self.has_position, database)

    def perform(self, step: Step) -> None:  # noqa: PLR0912 - one a step
        match step:
            case CreateTopic(topic):
                self.topics.add(topic.name)
            case DeleteTopics(names):
                self.topics -= set(names)
                gone = {table for table in self.snapshotted for name in names if name.endswith(f".{table}")}
                self.snapshotted -= gone
                self.missed -= gone
                if any(name.endswith(".signal") for name in names):
                    self.snapshots.clear()
                    self.asked.clear()
            case CreatePublication(_, tables, _):
                self.publication = self.publication or FoundPublication(
                    True, False, frozenset(tables), frozenset(tables)
                )
            case ChangePublication(_, added, removed):
                assert self.publication is not None
                published = (self.publication.tables | set(added)) - set(removed)
                self.publication = replace(self.publication, tables=published, listed=published)
            case DropPublication():
                self.publication = None
            case DropSlot(name):
                assert self.state == "STOPPED"
                self.slot = None if self.slot == name else self.slot
            case CreateConnector(_, config):
                assert self.config is None
                self.config, self.state = dict(config), "STOPPED"
            case ConfigureConnector(_, config):
                assert self.state == "STOPPED"
                self.config = dict(config)
            case StopConnector():
                self.state = "STOPPED"
            case ResumeConnector() | RestartConnector():
                self.state, self.trace = "RUNNING", ""
                self.stream()
            case ForgetPosition():
                assert self.state == "STOPPED"
                self.has_position = False
            case DeleteConnector():
                self.config, self.has_position = None, False
            case NoteFirstSnapshot(prefix, noted):
                assert SideTopics(prefix).signals in self.topics
                for object_id in noted:
                    self._signal(object_id, is_first=True)
            case AskSnapshot(prefix, upstream, object_id):
                assert SideTopics(prefix).signals in self.topics
                before = self.snapshots.get(object_id, NO_SNAPSHOT)
                self.snapshots[object_id] = replace(before, asked=before.asked + 1)
                self.asked.append((object_id, upstream))
            case other:
                assert_never(other)

    def stream(self) -> None:
        """The connector starts: it takes its first snapshot if it has no place, and those that it was asked for."""
        captured = self.captured()
        assert self.config is not None
        assert self.publication is not None
        assert captured & self.tables <= self.publication.tables, "it would miss changes"
        if not self.has_position:
            self.snapshotted |= captured
            self.missed -= captured
            self.slot = self.slot or self.config["slot.name"]
        self.has_position = True
        for object_id, upstream in self.asked:
            before = self.snapshots[object_id]
            if upstream in self.keyless:
                self.snapshots[object_id] = replace(before, failures=(*before.failures, "NO_PRIMARY_KEY"))
            elif upstream in captured:
                self.snapshotted.add(upstream)
                self.missed.discard(upstream)
                self.snapshots[object_id] = replace(before, succeeded=True)
            else:
                self.snapshots[object_id] = replace(before, failures=(*before.failures, "UNKNOWN_SCHEMA"))
        self.asked.clear()

    def _signal(self, object_id: str, *, is_first: bool) -> None:
        before = self.snapshots.get(object_id, NO_SNAPSHOT)
        self.snapshots[object_id] = replace(before, is_first=is_first)
