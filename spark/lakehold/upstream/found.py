"""What there is upstream at one moment. Values only: `look` fills them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.types import IcebergType

from lakehold.model.places import Place
from lakehold.upstream.connect import ConnectorStatus
from lakehold.upstream.found_columns import FoundColumn
from lakehold.upstream.found_values import LostValues

OPERATIONS = frozenset({"insert", "update", "delete", "truncate"})
"""What changes a publication of PostgreSQL may have."""


@dataclass(frozen=True)
class FoundConnector:
    """The connector.

    Attributes:
        config: Its configuration; holds the database's password.
        status: How it is; None for a moment after it was made.
        has_position: It remembers where it was: one that does not begins with a snapshot of all its tables.
    """

    config: Mapping[str, str] = field(repr=False)
    status: ConnectorStatus | None
    has_position: bool

    @property
    def state(self) -> str:
        """Of the connector itself, as Connect names it."""
        return self.status.connector if self.status is not None else "UNASSIGNED"

    @property
    def is_failed(self) -> bool:
        """Whether it or its task failed."""
        return self.status is not None and self.status.is_failed


@dataclass(frozen=True)
class FoundPublication:
    """A publication of PostgreSQL.

    Attributes:
        is_own: This source made it.
        is_anothers: Another source of lakehold did.
        is_for_all: It is FOR ALL TABLES.
        tables: Those whose changes it has, `schema.table`.
        listed: Those of them that it names itself, not by their schema.
        may_change: The source's user may change it.
        members: What tells the membership of a table that has changes in it from an earlier or a later one: object ids with
            slashes between, that of the publication first.
        operations: What changes it has: `insert`, `update`, `delete`, `truncate`.
        narrowed: Those of its tables of which it leaves something out, with what that is, in words.
    """

    is_own: bool
    is_for_all: bool
    tables: frozenset[str]
    listed: frozenset[str] = frozenset()
    may_change: bool = True
    members: Mapping[str, str] = field(default_factory=dict)
    is_anothers: bool = False
    operations: frozenset[str] = OPERATIONS
    narrowed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FoundTable:
    """A table of the database.

    Attributes:
        replica_identity: Of a row before its change PostgreSQL writes `d` the primary key, `f` all, `n` nothing, `i` an index.
        has_key: It has a primary key, or a unique index that Debezium takes in its place.
        is_owned: It is the source's user's, as what is put into a publication must be.
        ancestors: Those that it is a partition of, near or far.
    """

    replica_identity: str
    has_key: bool
    is_owned: bool = True
    ancestors: tuple[str, ...] = ()


@dataclass(frozen=True)
class FoundSignalTable:
    """The table for the marks of a connector.

    Attributes:
        may_write: The source's user may write and read it.
        is_owned: It is the source's user's, to publish and to drop.
        seen_ms: When lakehold last looked, epoch milliseconds, as the database was told then; None: it was not.
    """

    may_write: bool = True
    is_owned: bool = True
    seen_ms: int | None = None


@dataclass(frozen=True)
class FoundSignals:
    """What a database has for the marks of a connector, or may have.

    Attributes:
        table: The table for them, if it exists.
        may_make: The source's user may make it.
        is_published: The connector reads what the table has for changes; in MySQL and MariaDB it reads everything.
        may_publish: The source's user may have that so.
    """

    table: FoundSignalTable | None = None
    may_make: bool = False
    is_published: bool = True
    may_publish: bool = True

    @property
    def is_ready(self) -> bool:
        """Whether nothing is left to be made."""
        return self.table is not None and self.table.may_write and self.is_published

    @property
    def may_be_had(self) -> bool:
        """Whether it is ready, or can be made so."""
        may_have = self.may_make if self.table is None else self.table.is_owned and self.table.may_write
        return self.is_ready or (self.may_publish and may_have)


PLAIN = "table"
UNLOGGED = "unlogged table"
TEMPORARY = "temporary table"
VERSIONED = "system-versioned table"
HASHED = "table with a unique hash index"
WITHOUT_OVERLAPS = "table with a key WITHOUT OVERLAPS"
OF_DOTTED_SCHEMA = "table in a schema with a dot in its name"


@dataclass(frozen=True)
class FoundRelation:
    """What is in a database under the name of a table.

    Attributes:
        kind: What it is, `PLAIN` or another one, in words.
        may_read: The source's user may read all of its columns.
    """

    kind: str
    may_read: bool = True


@dataclass(frozen=True)
class FoundDatabase:
    """A database of PostgreSQL.

    Attributes:
        wal_level: Its setting.
        position: How far its log is, in bytes.
        confirmed: How much of that the slot's reader has sent on, in bytes; None: there is no slot.
        publication: The one that the source names, if it exists.
        slot: Of the replication slot that the source names its `wal_status`, `lost` among others; None: there is no slot.
        tables: The wanted tables that exist, by name.
        other_tables: Names of all the rest, for hints.
        may_create: The source's user may make publications.
        money: How it writes 1234.5 of type `money` for the source's user.
    """

    wal_level: str
    position: int
    publication: FoundPublication | None
    slot: str | None
    tables: Mapping[str, FoundTable]
    other_tables: tuple[str, ...] = ()
    may_create: bool = True
    confirmed: int | None = None
    money: str = "$1,234.50"

    @property
    def is_sent(self) -> bool:
        """Whether the slot's reader has sent on all that was logged."""
        return self.confirmed is not None and self.confirmed >= self.position

    @property
    def table_names(self) -> list[str]:
        """Names of all its tables, in order."""
        return sorted({*self.tables, *self.other_tables})

    def meant_by(self, name: str) -> str | None:
        """The table whose name is most like one that no table has; None: none is."""
        return _most_like(name, self.table_names)

    def renamed_from(self, name: str) -> str | None:
        """The table that is not wanted and whose name is most like that of a wanted one that is gone; None: none is."""
        return _most_like(name, self.other_tables)


def _most_like(name: str, names: Sequence[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, names, n=1)), None)


@dataclass(frozen=True)
class FoundSnapshot:
    """What the connector was told and said about the snapshot of one table.

    Attributes:
        is_first: It is in the connector's first snapshot.
        said_until: ... of which the notifications before this offset say nothing.
        asked: How often it was asked for.
        succeeded: The connector said that it is complete.
        failures: Why it is not, once for each time that the connector said so.
        missed: Changes of the table were missed since, and it could not be snapshotted again.
        fits_from: A place in the database's log: a table that joined fits the others from there on. None: none was noted.
        failed_in_row: How often it failed since it last succeeded or was in a first snapshot, other than for want of a key.
        again_ms: When it is to be asked for again, epoch milliseconds, if it failed so; else 0.
    """

    is_first: bool = False
    said_until: int = 0
    asked: int = 0
    succeeded: bool = False
    failures: tuple[str, ...] = ()
    missed: bool = False
    fits_from: Place | None = None
    failed_in_row: int = 0
    again_ms: int = 0

    @property
    def has_joined(self) -> bool:
        """Whether it was taken while others streamed: its rows may be later than what had been sent of the others."""
        return self.succeeded and not self.is_first

    def is_complete(self, first_said: int | None) -> bool:
        """Whether the topic has all of it; `first_said`: where the connector said that its first snapshot is complete."""
        return self.succeeded or (self.is_first and first_said is not None and first_said >= self.said_until)


NO_SNAPSHOT = FoundSnapshot()


@dataclass(frozen=True)
class FoundRepeat:
    """The last snapshot of one table that was asked for again because changes had been missed.

    Attributes:
        signal_id: Of the signal that asked for it.
        upstream: The table in the database.
        replaces_through: The sequence number of the lake's table when it was asked for: rows that were last changed at or before
            it, and that the snapshot does not bring, are gone upstream.
        is_certain: All that the database had logged before was in the lake then, so that no row is gone unseen.
        succeeded: The last scan of the table did; None: there was none.
        is_done: Nothing that was asked for until then is left to be scanned.
    """

    signal_id: str
    upstream: str
    replaces_through: int
    is_certain: bool
    succeeded: bool | None = None
    is_done: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the topic has all of it. One scan may answer two signals, and have begun before the second."""
        return self.is_done and self.succeeded is True

    @property
    def is_failed(self) -> bool:
        """Whether it ended without bringing all rows."""
        return self.is_done and not self.succeeded


@dataclass(frozen=True)
class Found:
    """What there is upstream of one source.

    Attributes:
        connector: None: there is none of its name.
        topics: Those that exist, of its own and of those that it would make.
        snapshots: By object id of the table.
        repeats: Of those that were asked for again, by object id of the table.
        members: The memberships in the publication that were noted, by the table's name upstream.
        first_snapshot_complete: The connector said that its first snapshot is.
        database: None for MySQL and MariaDB, which are not asked for their tables.
        writes_transactions: Connectors write in Kafka transactions; asked before one is made, else True.
        connector_version: Of the connector's class, as Debezium writes it; empty: unknown.
        objections: Why Kafka Connect would refuse the configuration that is wanted; asked where there is another or none.
        signals: What the database has for the connector's marks.
        relations: What it has under the names of the tables that a statement declares.
        columns: The columns of each wanted table that exists, in order, by the table's name upstream.
        lake_types: Types of columns of the lake's tables, by object id and name; asked only where there is no connector.
        lost: What the rows of the tables that a statement declares hold and Debezium does not send as it is, by the table's name.
        now_ms: When it was looked, epoch milliseconds; None: whoever looks does not wait to try again what failed.
    """

    connector: FoundConnector | None = None
    topics: frozenset[str] = frozenset()
    snapshots: Mapping[str, FoundSnapshot] = field(default_factory=dict)
    repeats: Mapping[str, FoundRepeat] = field(default_factory=dict)
    members: Mapping[str, str] = field(default_factory=dict)
    first_snapshot_complete: bool = False
    database: FoundDatabase | None = None
    writes_transactions: bool = True
    connector_version: str = ""
    objections: tuple[str, ...] = ()
    signals: FoundSignals = FoundSignals()
    relations: Mapping[str, FoundRelation] = field(default_factory=dict)
    columns: Mapping[str, tuple[FoundColumn, ...]] = field(default_factory=dict)
    lake_types: Mapping[str, Mapping[str, IcebergType]] = field(default_factory=dict)
    lost: Mapping[str, LostValues] = field(default_factory=dict)
    now_ms: int | None = None
