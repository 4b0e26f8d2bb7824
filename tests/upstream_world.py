"""A small model of a database, Kafka and Kafka Connect with Debezium: the effects of steps, and the findings of inspections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import assert_never

from lakehold.definitions import Capture, ConnectionType, Envelope, Format, FormatType, Source, Table
from lakehold.kafka.connection_options import KafkaOptions
from lakehold.model.lake_definitions import Entry
from lakehold.model.log_positions import LogPosition
from lakehold.model.offsets import TopicPartition
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.connector_status import ConnectorStatus
from lakehold.upstream.found.found import (
    ABSENT,
    OPERATIONS,
    PLAIN,
    Found,
    FoundConnector,
    FoundDatabase,
    FoundPublication,
    FoundRelation,
    FoundSignals,
    FoundSignalTable,
)
from lakehold.upstream.found.server_log import FoundFailover, FoundLog
from lakehold.upstream.found.shapes import Shape
from lakehold.upstream.found.snapshots import NO_SNAPSHOT, FoundRepeat, FoundSnapshot
from lakehold.upstream.plan.capture_plan import plan
from lakehold.upstream.plan.capture_steps import (
    ChangePublication,
    CheckLog,
    CompletePublication,
    ConfigureConnector,
    CreateConnector,
    CreatePublication,
    CreateSignalTable,
    CreateTopic,
    DeleteConnector,
    DeleteTopics,
    DropPublication,
    DropSignalTable,
    DropSlot,
    ForgetPosition,
    RecordFirstSnapshot,
    RecordMembers,
    RecordMissed,
    RecordShapes,
    RecordSyncPoint,
    Repeat,
    RequestSnapshot,
    RestartConnector,
    ResumeConnector,
    Step,
    StopConnector,
)
from lakehold.upstream.plan.failover_steps import CopySlot, TakeLog
from lakehold.upstream.wanted.connections import ConnectAddress, UpstreamConnections
from lakehold.upstream.wanted.connector_config import Login, SideTopics, json
from lakehold.upstream.wanted.wanted import InLake, Wanted, wanted
from tests.upstream_meddling import Meddled

CAPTURE = Capture(ConnectionType.POSTGRES, "pg", "connect", "shop", "p", "s")
OF_MARIADB = Capture(ConnectionType.MARIADB, "maria", "connect", "shop", server_id=7)
SOURCE = Entry("s1", Source("shop", Format(FormatType.JSON), "kafka", capture=CAPTURE), "", 0)
CONNECTIONS = UpstreamConnections(
    Login("db", 5432, "u", "secret", "shop"), ConnectAddress("http://c"), KafkaOptions("k:1", {}, {}), None, json()
)
_ROUNDS = 6
_WRITTEN = 1
"""The end offset of topics."""


def target(
    declared: Mapping[str, str],
    released: Sequence[str] = (),
    applied_position: int | None = None,
    capture: Capture = CAPTURE,
    new: Sequence[str] | None = None,
) -> Wanted:
    """Build the upstream objects that tables, by object id, need; `new` are the tables that a statement declares."""
    entries = [
        Entry(object_id, Table("shop", object_id, "shop", capture.topic(name), Envelope.DEBEZIUM, upstream=name), "", 0)
        for object_id, name in declared.items()
    ]
    topics = [capture.topic(name) for name in released]
    about = None if new is None else frozenset(new)
    return wanted(
        SOURCE, capture, entries, CONNECTIONS, applied_position=applied_position, released=topics, declared=about
    )


def reconcile(world: World, goal: Wanted, cut_after: int | None = None) -> bool:
    """Apply steps as `lakehold.upstream.capturing` does, but stop after `cut_after` steps; returns whether none was left."""
    done = 0
    for _ in range(_ROUNDS):
        steps = plan(replace(goal, lake=world.lake(goal)), world.inspect(goal)).steps
        if not steps:
            return True
        for step in steps:
            if done == cut_after:
                return False
            world.apply_step(step)
            done += 1
            if isinstance(step, CreateConnector):
                break
    raise AssertionError("reconciling does not end")


@dataclass
class World(Meddled):
    """A database with tables, and the systems that capture it.

    Attributes:
        tables: Tables of the database.
        snapshotted: Tables that the connector snapshotted since their topic was last created.
        keyless: Tables without a primary key.
        multisets: Tables that the lake has without a key.
        may_publish: The source's user may create and change publications.
        missed: Tables that changed while the connector did not capture them, and had no snapshot since.
        gone: Tables with rows in the lake that were deleted while the connector did not capture them.
        unread: Tables whose earlier changes the lake has not read completely.
        recorded: The recorded memberships of the tables in the publication.
        repeated: The last repeated snapshot of each table that the lake has, by object id.
        signal_table: The signal table of the connector.
        may_make_signal_table: The source's user may create the signal table.
        is_mariadb: The database is a MariaDB, which has no publications and slots.
        columns: Columns of the tables.
        failover: The settings of the database for a failover.
        log: The log of the database that was recorded.
    """

    tables: frozenset[str]
    config: dict[str, str] | None = None
    state: str = "STOPPED"
    has_position: bool = False
    slot: str | None = None
    publication: FoundPublication | None = None
    topics: set[str] = field(default_factory=set)
    snapshots: dict[str, FoundSnapshot] = field(default_factory=dict)
    requested: list[tuple[str, str]] = field(default_factory=list)
    snapshotted: set[str] = field(default_factory=set)
    keyless: frozenset[str] = frozenset()
    multisets: frozenset[str] = frozenset()
    may_publish: bool = True
    missed: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    made: int = 0
    counter: Iterator[int] = field(default_factory=count)
    recorded: dict[str, str] = field(default_factory=dict)
    repeats: dict[str, FoundRepeat] = field(default_factory=dict)
    shows_deletes: set[str] = field(default_factory=set)
    repeated: dict[str, str] = field(default_factory=dict)
    position: int = 1_000
    trace: str = ""
    signal_table: FoundSignalTable | None = None
    may_make_signal_table: bool = True
    is_mariadb: bool = False
    columns: Mapping[str, tuple[FoundColumn, ...]] = field(default_factory=dict)
    failover: FoundFailover = field(default_factory=FoundFailover)
    log: FoundLog | None = None
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    recorded_shapes: dict[str, Shape] = field(default_factory=dict)

    @property
    def is_capturing(self) -> bool:
        """Return whether the connector or the publication exists, from which somebody may remove a table."""
        return self.config is not None and (self.is_mariadb or self.publication is not None)

    def lake(self, wanted: Wanted) -> dict[str, InLake]:
        """Return the progress of the lake with the tables."""
        return {
            table.object_id: InLake(
                {TopicPartition(table.topic, 0): 0 if table.upstream in self.unread else _WRITTEN},
                self.repeated.get(table.object_id),
            )
            for table in wanted.tables
        }

    def ingest(self) -> None:
        """Let the lake read everything; rows older than a repeated snapshot and not in it are deleted."""
        self.unread.clear()
        for object_id, repeat in self.repeats.items():
            if repeat.is_complete and self.repeated.get(object_id) != repeat.signal_id:
                self.repeated[object_id] = repeat.signal_id
                if repeat.signal_id in self.shows_deletes:
                    self.gone.discard(repeat.upstream)

    def inspect(self, wanted: Wanted) -> Found:
        """Return what exists; the connector has sent all that was logged."""
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
            None if self.publication is None else replace(self.publication, may_change=self.may_publish),
            "reserved" if self.slot == wanted.capture.slot else None,
            {name: self._found_table(name) for name in wanted.upstream_tables if name in self.tables},
            tuple(sorted(self.tables - set(wanted.upstream_tables))),
            self.may_publish,
            self.position,
            failover=self.failover,
            shapes={name: self.shapes[name] for name in wanted.upstream_tables if name in self.shapes},
            names={shape["table"]: name for name, shape in self.shapes.items()},
        )
        return Found(
            connector,
            frozenset(names & self.topics),
            dict(self.snapshots),
            dict(self.repeats),
            dict(self.recorded),
            self.has_position,
            None if self.is_mariadb else database,
            signals=self._signals(wanted.signal_table),
            relations={
                **({name: FoundRelation(ABSENT) for name in wanted.upstream_tables} if self.is_mariadb else {}),
                **{name: FoundRelation(PLAIN) for name in wanted.upstream_tables if name in self.tables},
            },
            columns={name: self.columns[name] for name in wanted.upstream_tables if name in self.columns},
            multisets=self.multisets,
            log=self.log,
            applied_position=wanted.applied_position,
            shapes=dict(self.recorded_shapes),
        )

    def _signals(self, name: str) -> FoundSignals:
        if self.is_mariadb:
            return FoundSignals(self.signal_table, self.may_make_signal_table)
        existing = self.publication
        is_for_all = existing is not None and existing.is_for_all
        return FoundSignals(
            self.signal_table,
            self.may_make_signal_table,
            existing is not None and (is_for_all or name in existing.tables),
            self.may_publish or is_for_all,
        )

    def apply_step(self, step: Step) -> None:  # noqa: PLR0912, PLR0915 - one a step
        match step:
            case CreateTopic(topic):
                self.topics.add(topic.name)
            case DeleteTopics(names):
                self.topics -= set(names)
                gone = {table for table in self.snapshotted for name in names if name.endswith(f".{table}")}
                self.snapshotted -= gone
                self.missed -= gone
                self.gone -= gone
                if any(name.endswith(".signal") for name in names):
                    self.snapshots.clear()
                    self.requested.clear()
                    self.repeats.clear()
                    self.recorded.clear()
            case CreatePublication(_, tables, _):
                if self.publication is None:
                    self.publication = FoundPublication(True, False, frozenset())
                    self.publish(tables)
            case ChangePublication(_, added, removed):
                assert self.publication is not None
                self.publish((self.publication.tables | set(added)) - set(removed))
            case CompletePublication(_, tables):
                assert self.publication is not None
                assert self.config is None or self.state == "STOPPED"
                assert set(tables) <= self.publication.narrowed.keys()
                self.publication = replace(self.publication, operations=OPERATIONS, narrowed={})
                self._write_publication()
            case DropPublication():
                self.publication = None
            case CreateSignalTable(name, publication):
                assert self.config is None or self.state == "STOPPED"
                self.signal_table = self.signal_table or FoundSignalTable()
                if self.publication is not None and (publication is not None or self.publication.is_for_all):
                    self.publish(self.publication.tables | {name})
                assert self._hears(name)
            case DropSignalTable(name):
                self.signal_table = None
                assert self.publication is None or name not in self.publication.tables
            case CheckLog():
                assert self.state == "STOPPED"
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
            case RecordFirstSnapshot(prefix, recorded):
                assert SideTopics(prefix).signals in self.topics
                for object_id in recorded:
                    self._signal(object_id, is_first=True)
                    self.repeats.pop(object_id, None)
            case RecordMissed(_, recorded):
                for object_id in recorded:
                    before = self.snapshots.get(object_id, NO_SNAPSHOT)
                    self.snapshots[object_id] = replace(before, missed=True)
            case RecordShapes(_, _, shapes):
                self.recorded_shapes |= shapes
            case RecordMembers(_, _, _, names, shapes):
                assert self.publication is not None
                self.recorded_shapes |= shapes
                self.recorded |= {
                    name: self.publication.members[name] for name in names if name in self.publication.members
                }
            case RecordSyncPoint(_, recorded, signal_table):
                assert not self.is_mariadb or self._hears(signal_table)
                for object_id in recorded:
                    self.snapshots[object_id] = replace(
                        self.snapshots[object_id], sync_point=LogPosition("log", (self.position,))
                    )
            case CopySlot(name):
                assert self.state == "STOPPED"
                assert self.slot == name
                self.failover = replace(self.failover, is_copied=True)
            case TakeLog(_, _, log, _, _):
                self.log = log
            case RequestSnapshot(prefix, upstream, object_id, repeat, signal_table):
                assert SideTopics(prefix).signals in self.topics
                if signal_table is not None:
                    assert self._hears(signal_table)
                before = self.snapshots.get(object_id, NO_SNAPSHOT)
                self.snapshots[object_id] = replace(before, requested=before.requested + 1)
                self.requested.append((object_id, upstream))
                if repeat is not None:
                    self._repeat(upstream, repeat)
                if self.state == "RUNNING":
                    self.stream()
            case other:
                assert_never(other)

    def stream(self) -> None:
        """Start the connector: it takes its first snapshot if it has no position, and those that it was asked for."""
        captured = self.captured()
        assert self.config is not None
        if not self.is_mariadb:
            assert self.publication is not None
            assert captured & self.publishable <= self.publication.tables, "the connector would miss changes"
        signal_table = self.config.get("signal.data.collection")
        assert signal_table is None or self._hears(signal_table), "no snapshot ends"
        if not self.has_position:
            self.snapshotted |= captured
            self.missed -= captured
            self.gone -= captured
            self.slot = self.slot or self.config.get("slot.name")
        self.has_position = True
        for object_id, upstream in self.requested:
            before = self.snapshots[object_id]
            if upstream in self.keyless:
                self.snapshots[object_id] = replace(before, failures=(*before.failures, "NO_PRIMARY_KEY"))
            elif upstream in captured:
                self.snapshotted.add(upstream)
                self.missed.discard(upstream)
                self.snapshots[object_id] = replace(before, succeeded=True)
            else:
                self.snapshots[object_id] = replace(before, failures=(*before.failures, "UNKNOWN_SCHEMA"))
        requested = {upstream for _, upstream in self.requested}
        for object_id, repeat in self.repeats.items():
            if repeat.upstream in requested and not repeat.is_done:
                succeeded = repeat.upstream in captured - self.keyless
                self.repeats[object_id] = replace(repeat, succeeded=succeeded, is_done=True)
        self.requested.clear()

    def _hears(self, signal_table: str) -> bool:
        is_published = self.is_mariadb or (self.publication is not None and signal_table in self.publication.tables)
        return self.signal_table is not None and is_published

    def _repeat(self, upstream: str, repeat: Repeat) -> None:
        signal_id = f"signal {next(self.counter)}"
        is_certain = repeat.confirms or (repeat.read is not None and min(repeat.read.values(), default=0) >= _WRITTEN)
        if upstream not in self.unread:
            self.shows_deletes.add(signal_id)
        for object_id in repeat.tables:
            self.repeats[object_id] = FoundRepeat(signal_id, upstream, 0, is_certain)
            self.snapshots[object_id] = replace(self.snapshots.get(object_id, NO_SNAPSHOT), missed=False)

    def _signal(self, object_id: str, *, is_first: bool) -> None:
        before = self.snapshots.get(object_id, NO_SNAPSHOT)
        self.snapshots[object_id] = replace(before, is_first=is_first, missed=False)
