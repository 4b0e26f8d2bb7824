"""Steps that change what is upstream. Each does no harm when it is done again; `told` is what EXPLAIN shows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehold.model.offsets import Offsets
from lakehold.upstream.connector_config import included_tables
from lakehold.upstream.wanted import Topic


@dataclass(frozen=True)
class CreateTopic:
    """Make a topic unless it exists."""

    topic: Topic

    @property
    def told(self) -> str:
        """In words."""
        count = self.topic.partitions
        return f"create topic {self.topic.name} with {count} partition{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class DeleteTopics:
    """Delete topics that exist."""

    names: tuple[str, ...]

    @property
    def told(self) -> str:
        """In words."""
        return f"delete topic{'' if len(self.names) == 1 else 's'} {', '.join(self.names)}"


@dataclass(frozen=True)
class CreatePublication:
    """Make a publication of some tables, marked as the source's own."""

    name: str
    tables: tuple[str, ...]
    source_id: str

    @property
    def told(self) -> str:
        """In words."""
        return f"create publication {self.name} for {', '.join(self.tables)}"


@dataclass(frozen=True)
class ChangePublication:
    """Put tables into a publication and take tables from it."""

    name: str
    added: tuple[str, ...]
    removed: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """In words."""
        changes = [f"add {', '.join(self.added)}"] if self.added else []
        changes += [f"remove {', '.join(self.removed)}"] if self.removed else []
        return f"publication {self.name}: {', '.join(changes)}"


@dataclass(frozen=True)
class CompletePublication:
    """Have a publication leave nothing out of its changes: no operation, and nothing of some tables that it narrows."""

    name: str
    tables: tuple[str, ...]

    @property
    def told(self) -> str:
        """In words."""
        narrowed = f", all of {', '.join(self.tables)}" if self.tables else ""
        return f"publication {self.name}: publish all operations{narrowed}"


@dataclass(frozen=True)
class DropPublication:
    """Drop a publication."""

    name: str

    @property
    def told(self) -> str:
        """In words."""
        return f"drop publication {self.name}"


@dataclass(frozen=True)
class CreateSignalTable:
    """Make a connector's signal table unless it exists, and put it into a publication, if any."""

    name: str
    publication: str | None

    @property
    def told(self) -> str:
        """In words."""
        published = f" in publication {self.publication}" if self.publication is not None else ""
        return f"create table {self.name}{published}, and schema {self.name.partition('.')[0]} unless it is there"


@dataclass(frozen=True)
class DropSignalTable:
    """Drop a connector's signal table, and the schema, or the database, of such tables with the last of them."""

    name: str

    @property
    def told(self) -> str:
        """In words."""
        return f"drop table {self.name}"


@dataclass(frozen=True)
class DropSlot:
    """Drop a replication slot when its connector has let go of it."""

    name: str

    @property
    def told(self) -> str:
        """In words."""
        return f"drop replication slot {self.name}"


@dataclass(frozen=True)
class CreateConnector:
    """Make a connector that does nothing yet."""

    name: str
    config: Mapping[str, str] = field(repr=False)

    @property
    def told(self) -> str:
        """In words."""
        tables = ",".join(included_tables(self.config))
        slot, publication = self.config.get("slot.name"), self.config.get("publication.name")
        of_postgres = f", with replication slot {slot} and publication {publication}" if slot else ""
        return f"create connector {self.name} over {tables}{of_postgres}"


@dataclass(frozen=True)
class ConfigureConnector:
    """Change a stopped connector's configuration; `changes` are the differences, secrets masked."""

    name: str
    config: Mapping[str, str] = field(repr=False)
    changes: tuple[str, ...]

    @property
    def told(self) -> str:
        """In words."""
        return f"connector {self.name}: {'; '.join(self.changes)}"


@dataclass(frozen=True)
class StopConnector:
    """Stop a connector, which keeps its place."""

    name: str

    @property
    def told(self) -> str:
        """In words."""
        return f"stop connector {self.name}"


@dataclass(frozen=True)
class ResumeConnector:
    """Let a connector go on, and wait until it runs."""

    name: str

    @property
    def told(self) -> str:
        """In words."""
        return f"start connector {self.name}"


@dataclass(frozen=True)
class RestartConnector:
    """Restart what failed of a connector; whether that helped, the next look tells."""

    name: str
    reason: str

    @property
    def told(self) -> str:
        """In words."""
        return f"restart connector {self.name}, which failed: {self.reason}"


@dataclass(frozen=True)
class CheckLog:
    """See whether what was logged for a slot, whose reader was stopped, can be read with a publication that was made again."""

    slot: str
    publication: str
    source: str

    @property
    def told(self) -> str:
        """In words."""
        return f"check that slot {self.slot} can be read with publication {self.publication}, which was made again"


@dataclass(frozen=True)
class ForgetPosition:
    """Have a stopped connector begin anew, with a snapshot of all its tables."""

    name: str

    @property
    def told(self) -> str:
        """In words."""
        return f"connector {self.name}: forget its position"


@dataclass(frozen=True)
class DeleteConnector:
    """Delete a stopped connector and its position."""

    name: str

    @property
    def told(self) -> str:
        """In words."""
        return f"delete connector {self.name}"


@dataclass(frozen=True)
class NoteFirstSnapshot:
    """Write down that tables are in the connector's first snapshot: their names upstream, by object id."""

    prefix: str
    tables: Mapping[str, str]

    @property
    def told(self) -> str:
        """In words."""
        return f"first snapshot: {', '.join(sorted(set(self.tables.values())))}"


@dataclass(frozen=True)
class Repeat:
    """What a snapshot is asked for again for.

    Attributes:
        topic: Of the table upstream.
        tables: The tables of the lake that are fed from it, full names by object id.
        read: How far all of them have read the topic; None: the connector may not have sent all that was logged before.
        confirms: The lake has a snapshot of it that was asked for since the changes were missed.
    """

    topic: str
    tables: Mapping[str, str]
    read: Offsets | None = None
    confirms: bool = False


@dataclass(frozen=True)
class AskSnapshot:
    """Ask the connector for a snapshot of one table while the others stream.

    Attributes:
        prefix: Of the topics.
        upstream: The table.
        object_id: The lake's table.
        repeat: Of one that had changes before.
        signal_table: Where the connector takes the question from; None: from the topic, where it is noted in any case.
    """

    prefix: str
    upstream: str
    object_id: str
    repeat: Repeat | None = None
    signal_table: str | None = None

    @property
    def told(self) -> str:
        """In words."""
        return f"snapshot of {self.upstream} alone"


@dataclass(frozen=True)
class NoteMissed:
    """Write down that changes of tables were missed that cannot be snapshotted alone: their names upstream, by object id."""

    prefix: str
    tables: Mapping[str, str]

    @property
    def told(self) -> str:
        """In words."""
        return f"note that changes were missed of {', '.join(sorted(set(self.tables.values())))}"


@dataclass(frozen=True)
class NoteMembers:
    """Write down which memberships in a publication some tables have, so that others are told from them."""

    prefix: str
    source_id: str
    publication: str
    tables: tuple[str, ...]

    @property
    def told(self) -> str:
        """In words."""
        return f"note that {', '.join(self.tables)} {'is' if len(self.tables) == 1 else 'are'} in publication {self.publication}"


@dataclass(frozen=True)
class NoteFit:
    """Mark the database's log and write down where: the tables, whose snapshots are complete, fit the others from there on.

    Args:
        prefix: Of the topics.
        tables: Their names upstream, by object id.
        signal_table: The connector's; MySQL and MariaDB have nothing else to write a mark with.
    """

    prefix: str
    tables: Mapping[str, str]
    signal_table: str

    @property
    def told(self) -> str:
        """In words."""
        return f"mark the log: the snapshot of {', '.join(sorted(set(self.tables.values())))} is complete"


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
    | NoteFirstSnapshot
    | AskSnapshot
    | NoteMissed
    | NoteMembers
    | NoteFit
)


@dataclass(frozen=True)
class Steps:
    """What leads from what there is to what is wanted, in order; `hints` are what a person should do or know."""

    steps: tuple[Step, ...] = ()
    hints: tuple[str, ...] = ()
