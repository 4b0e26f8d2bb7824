"""Steps that change what exists upstream: data classes that `capture_plan` computes and `step_effects` applies.

Each is safe to repeat; EXPLAIN shows its `description`. `source_id` is the object id of the source, and `prefix` begins the names
of its topics. What a step records is in the signal topic, from which the journal reads it at the next inspection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehold.model.offsets import Offsets
from lakehold.upstream.found.shapes import Shape
from lakehold.upstream.plan.failover_steps import CopySlot, TakeLog
from lakehold.upstream.wanted.connector_config import included_tables
from lakehold.upstream.wanted.wanted import Topic


@dataclass(frozen=True)
class CreateTopic:
    """A step that creates a topic unless it exists."""

    topic: Topic

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        count = self.topic.partitions
        return f"create topic {self.topic.name} with {count} partition{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class DeleteTopics:
    """A step that deletes topics that exist."""

    names: tuple[str, ...]

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"delete topic{'' if len(self.names) == 1 else 's'} {', '.join(self.names)}"


@dataclass(frozen=True)
class CreatePublication:
    """A step that creates a publication of some tables, marked as the source's own."""

    name: str
    tables: tuple[str, ...]
    source_id: str

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"create publication {self.name} for {', '.join(self.tables)}"


@dataclass(frozen=True)
class ChangePublication:
    """A step that adds tables to a publication and removes tables from it."""

    name: str
    added: tuple[str, ...]
    removed: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        changes = [f"add {', '.join(self.added)}"] if self.added else []
        changes += [f"remove {', '.join(self.removed)}"] if self.removed else []
        return f"publication {self.name}: {', '.join(changes)}"


@dataclass(frozen=True)
class CompletePublication:
    """A step that makes a publication complete: all operations, and all rows and columns of `tables`, which it narrowed."""

    name: str
    tables: tuple[str, ...]

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        narrowed = f", all of {', '.join(self.tables)}" if self.tables else ""
        return f"publication {self.name}: publish all operations{narrowed}"


@dataclass(frozen=True)
class DropPublication:
    """A step that drops a publication."""

    name: str

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"drop publication {self.name}"


@dataclass(frozen=True)
class CreateSignalTable:
    """A step that creates a connector's signal table unless it exists, and adds it to a publication, if any."""

    name: str
    publication: str | None

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        published = f" in publication {self.publication}" if self.publication is not None else ""
        return f"create table {self.name}{published}, and schema {self.name.partition('.')[0]} unless it exists"


@dataclass(frozen=True)
class DropSignalTable:
    """A step that drops a connector's signal table, and with the last such table their schema or database."""

    name: str

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"drop table {self.name}"


@dataclass(frozen=True)
class DropSlot:
    """A step that drops a replication slot once its connector has released it."""

    name: str

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"drop replication slot {self.name}"


@dataclass(frozen=True)
class CreateConnector:
    """A step that creates a connector that does nothing until `ResumeConnector`."""

    name: str
    config: Mapping[str, str] = field(repr=False)

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        tables = ",".join(included_tables(self.config))
        slot, publication = self.config.get("slot.name"), self.config.get("publication.name")
        of_postgres = f", with replication slot {slot} and publication {publication}" if slot else ""
        return f"create connector {self.name} over {tables}{of_postgres}"


@dataclass(frozen=True)
class ConfigureConnector:
    """A step that changes a stopped connector's configuration; `changes` are the differences, with secrets masked."""

    name: str
    config: Mapping[str, str] = field(repr=False)
    changes: tuple[str, ...]

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"connector {self.name}: {'; '.join(self.changes)}"


@dataclass(frozen=True)
class StopConnector:
    """A step that stops a connector, which keeps its position."""

    name: str

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"stop connector {self.name}"


@dataclass(frozen=True)
class ResumeConnector:
    """A step that resumes a connector, and waits until it runs."""

    name: str

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"start connector {self.name}"


@dataclass(frozen=True)
class RestartConnector:
    """A step that restarts what failed of a connector, for `reason`; the next inspection shows whether that helped."""

    name: str
    reason: str

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"restart connector {self.name}, which failed: {self.reason}"


@dataclass(frozen=True)
class CheckLog:
    """A step that checks whether PostgreSQL can decode the log of a slot after the publication was created again."""

    slot: str
    publication: str
    source: str

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"check that slot {self.slot} can be read with publication {self.publication}, which was created again"


@dataclass(frozen=True)
class ForgetPosition:
    """A step that deletes a stopped connector's position: it begins again, with a snapshot of all its tables."""

    name: str

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"connector {self.name}: forget its position"


@dataclass(frozen=True)
class DeleteConnector:
    """A step that deletes a stopped connector and its position."""

    name: str

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"delete connector {self.name}"


@dataclass(frozen=True)
class RecordFirstSnapshot:
    """A step that records which tables are in the connector's first snapshot: their names upstream, by object id."""

    prefix: str
    tables: Mapping[str, str]

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"first snapshot: {', '.join(sorted(set(self.tables.values())))}"


@dataclass(frozen=True)
class Repeat:
    """The extent of a repeated snapshot, requested because changes of a table were missed or its rows have other values.

    If the lake had not `read` all that was logged before, deleted rows can remain: a second one follows unless it `confirms`.

    Attributes:
        topic: The topic of the table upstream.
        tables: The tables of the lake that the topic feeds, full names by object id.
        read: How far all of them have read the topic; None: the connector may not have sent all that was logged before.
        confirms: No second snapshot follows: no change was missed, or this is the second one.
    """

    topic: str
    tables: Mapping[str, str]
    read: Offsets | None = None
    confirms: bool = False


@dataclass(frozen=True)
class RequestSnapshot:
    """A step that requests a snapshot of one table while the others stream.

    Attributes:
        prefix: First part of the topics' names.
        upstream: The table in the database.
        object_id: Object id of the lake's table.
        repeat: Set if changes of the table were missed or its rows are read again; None: it is the table's first snapshot.
        signal_table: The table through which to request it; None: through the topic, which keeps the signal in any case.
    """

    prefix: str
    upstream: str
    object_id: str
    repeat: Repeat | None = None
    signal_table: str | None = None

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"snapshot of {self.upstream} alone"


@dataclass(frozen=True)
class RecordMissed:
    """A step that records missed changes of tables that cannot be snapshotted alone, or not now: names upstream by object id."""

    prefix: str
    tables: Mapping[str, str]

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"record that changes were missed of {', '.join(sorted(set(self.tables.values())))}"


@dataclass(frozen=True)
class RecordMembers:
    """A step that records tables' memberships (`FoundPublication.members`) and shapes (`Shape`), to see when they differ."""

    prefix: str
    source_id: str
    publication: str
    tables: tuple[str, ...]
    shapes: Mapping[str, Shape] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        verb = "is" if len(self.tables) == 1 else "are"
        return f"record that {', '.join(self.tables)} {verb} in publication {self.publication}"


@dataclass(frozen=True)
class RecordShapes:
    """A step that records the shapes of tables (`Shape`), to recognize later when their rows changed without events."""

    prefix: str
    source_id: str
    shapes: Mapping[str, Shape]

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return f"record columns, files and partitions of {', '.join(sorted(self.shapes))}"


@dataclass(frozen=True)
class RecordSyncPoint:
    """A step that writes a sync point to the log and records its position: from there joined tables fit the others of the source.

    Args:
        prefix: First part of the topics' names.
        tables: The tables' names upstream, by object id.
        signal_table: The connector's signal table; in MySQL and MariaDB a sync point is a write to it.
    """

    prefix: str
    tables: Mapping[str, str]
    signal_table: str

    @property
    def description(self) -> str:
        """Describe the step for EXPLAIN."""
        return (
            f"write a sync point to the log: the snapshot of {', '.join(sorted(set(self.tables.values())))} is complete"
        )


Step = (
    CreateTopic
    | DeleteTopics
    | CreatePublication
    | ChangePublication
    | CompletePublication
    | DropPublication
    | CreateSignalTable
    | DropSignalTable
    | DropSlot
    | CreateConnector
    | ConfigureConnector
    | StopConnector
    | ResumeConnector
    | RestartConnector
    | CheckLog
    | ForgetPosition
    | DeleteConnector
    | RecordFirstSnapshot
    | RequestSnapshot
    | RecordMissed
    | RecordMembers
    | RecordShapes
    | RecordSyncPoint
    | CopySlot
    | TakeLog
)


@dataclass(frozen=True)
class Steps:
    """The steps from what exists to what is wanted, in order; `hints` are what a person should do or know."""

    steps: tuple[Step, ...] = ()
    hints: tuple[str, ...] = ()
