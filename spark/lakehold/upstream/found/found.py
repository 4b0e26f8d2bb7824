"""The state of a source's upstream at one moment. Data classes only.

`Capturing` fills them, from the database, Kafka Connect, Kafka and the journal: what lakehold and the connector recorded in the
source's signal and notification topics (`journal.py`). `capture_plan.py` compares them with what the definitions want (`Wanted`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.types import IcebergType

from lakehold.nearest import close_names
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.connector_status import ConnectorStatus
from lakehold.upstream.found.server_log import FoundFailover, FoundLog
from lakehold.upstream.found.shapes import Shape
from lakehold.upstream.found.snapshots import FoundAlteration, FoundRepeat, FoundSnapshot
from lakehold.upstream.found.values import LostValues

OPERATIONS = frozenset({"insert", "update", "delete", "truncate"})
"""The kinds of changes that a publication of PostgreSQL may have."""


@dataclass(frozen=True)
class FoundConnector:
    """The connector as Kafka Connect has it.

    Attributes:
        config: Configuration of the connector; holds the database's password.
        status: Status of the connector; None for a moment after it was created.
        has_position: Whether Connect remembers the connector's position; without one it starts with a snapshot of all its tables.
    """

    config: Mapping[str, str] = field(repr=False)
    status: ConnectorStatus | None
    has_position: bool

    @property
    def state(self) -> str:
        """Return the state of the connector itself, as Connect names it."""
        return self.status.connector if self.status is not None else "UNASSIGNED"

    @property
    def is_failed(self) -> bool:
        """Return whether the connector or its task failed."""
        return self.status is not None and self.status.is_failed


@dataclass(frozen=True)
class FoundPublication:
    """A publication of PostgreSQL.

    Attributes:
        is_own: This source created it: its comment says so (`publication.own_mark`).
        is_foreign: Another source of lakehold created it.
        is_for_all: The publication is FOR ALL TABLES.
        tables: Tables whose changes it publishes, `schema.table`.
        listed: Those of `tables` that the publication lists itself, not by their schema.
        may_change: The source's user may change it.
        members: An identity of each table's membership, which differs when the table leaves and comes back: object ids with
            slashes between, that of the publication first.
        operations: The kinds of changes that it publishes: `insert`, `update`, `delete`, `truncate`.
        narrowed: The tables of which the publication leaves something out, each with what is left out, in words.
    """

    is_own: bool
    is_for_all: bool
    tables: frozenset[str]
    listed: frozenset[str] = frozenset()
    may_change: bool = True
    members: Mapping[str, str] = field(default_factory=dict)
    is_foreign: bool = False
    operations: frozenset[str] = OPERATIONS
    narrowed: Mapping[str, str] = field(default_factory=dict)


NOTHING = "n"
"""The replica identity of a table whose updated and deleted rows PostgreSQL does not log."""
OTHER_COLUMNS = "o"
"""The replica identity of a table that names an index which lacks columns of the key: a deleted row cannot be recognised."""
FULL = "f"
"""The replica identity of a table of which PostgreSQL logs the whole row before a change."""


@dataclass(frozen=True)
class FoundLeaf:
    """A partition that stores rows of a partitioned table.

    Attributes:
        name: The partition, `schema.name`.
        replica_identity: As of a table. It decides what PostgreSQL logs of the partition's rows; its parent's does not.
        unlogged: The kind of table if PostgreSQL does not log its changes; empty if it does.
    """

    name: str
    replica_identity: str
    unlogged: str = ""


@dataclass(frozen=True)
class FoundTable:
    """A table of the database.

    Attributes:
        replica_identity: What PostgreSQL logs of a row before a change: `d` the primary key, `f` all, `n` nothing, `i` an index,
            `o` an index that lacks columns of the key. Of a partitioned table that of the partition with the least.
        has_key: The table has a primary key, or a unique index that Debezium takes in its place, and its values identify rows.
        deferrable_key: The columns of this key if it is DEFERRABLE: several rows may have its values until they are committed.
        is_owned: The source's user owns the table, which putting it into a publication requires.
        ancestors: The tables that this one is a partition of, near or far.
        heirs: The tables that inherit from this one (`INHERITS`); partitions do not count.
        leaves: The partitions that store its rows, if it is a partitioned table that the source wants.
    """

    replica_identity: str
    has_key: bool
    deferrable_key: tuple[str, ...] = ()
    is_owned: bool = True
    ancestors: tuple[str, ...] = ()
    heirs: tuple[str, ...] = ()
    leaves: tuple[FoundLeaf, ...] = ()


@dataclass(frozen=True)
class FoundSignalTable:
    """The table in which a connector marks its snapshots.

    Attributes:
        may_write: The source's user may write and read it.
        is_owned: The source's user owns it, and so may publish and drop it.
        seen_ms: The time of lakehold's last inspection that the table keeps, epoch milliseconds; None: it keeps none.
    """

    may_write: bool = True
    is_owned: bool = True
    seen_ms: int | None = None


@dataclass(frozen=True)
class FoundSignals:
    """The signal table of a connector, as it exists or may be created.

    Attributes:
        table: The signal table, if it exists.
        may_make: The source's user may create it.
        is_published: The connector reads the table's changes; in MySQL and MariaDB a connector reads everything.
        may_publish: The source's user may have the table published.
    """

    table: FoundSignalTable | None = None
    may_make: bool = False
    is_published: bool = True
    may_publish: bool = True

    @property
    def is_ready(self) -> bool:
        """Return whether nothing is left to create."""
        return self.table is not None and self.table.may_write and self.is_published

    @property
    def may_be_had(self) -> bool:
        """Return whether the signal table is ready, or can be made so."""
        may_have = self.may_make if self.table is None else self.table.is_owned and self.table.may_write
        return self.is_ready or (self.may_publish and may_have)


PLAIN = "table"
UNLOGGED = "unlogged table"
TEMPORARY = "temporary table"
VERSIONED = "system-versioned table"
HASHED = "table with a unique hash index"
WITHOUT_OVERLAPS = "table with a key WITHOUT OVERLAPS"
OF_DOTTED_SCHEMA = "table in a schema with a dot in its name"
ABSENT = "table that does not exist"
"""The kind of a table of MySQL and MariaDB that the server certainly does not have; it denies others that it may have."""


@dataclass(frozen=True)
class FoundRelation:
    """An object that a database has under the name of a table.

    Attributes:
        kind: The kind of object: `PLAIN` or another kind, in words.
        may_read: The source's user may read all columns.
    """

    kind: str
    may_read: bool = True


@dataclass(frozen=True)
class FoundDatabase:
    """A database of PostgreSQL.

    Attributes:
        wal_level: The setting of this name.
        position: The end of the database's log, in bytes.
        confirmed: The position in the log up to which the slot's reader has sent on changes; None: there is no slot.
        publication: The publication that the source names, if it exists.
        slot: The `wal_status` of the replication slot that the source names, `lost` among others; None: there is no slot.
        tables: The wanted tables that exist, by name.
        other_tables: Names of all other tables, for hints.
        may_create: The source's user may create publications.
        money: The text of 1234.5 as type `money` for the source's user: the connector fails at a decimal comma.
        bytea_output: The setting of this name for the source's user: the connector reads streamed `bytea` as `hex` only.
        failover: The server's settings and slots that decide what a failover loses.
        shapes: What the catalogue says now of columns, storage files and partitions of each wanted table that exists, by name
            (`Shape`): it shows changes of rows without an event.
        names: The names of all tables by object id, which a table keeps under another name.
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
    bytea_output: str = "hex"
    failover: FoundFailover = field(default_factory=FoundFailover)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_sent(self) -> bool:
        """Return whether the slot's reader has sent on all of the log."""
        return self.confirmed is not None and self.confirmed >= self.position

    @property
    def table_names(self) -> list[str]:
        """Return the names of all tables of the database, in order."""
        return sorted({*self.tables, *self.other_tables})

    def meant_by(self, name: str) -> str | None:
        """Return the table whose name is most like `name`, which no table has; None: none is like it."""
        return next(iter(close_names(name, self.table_names)), None)


@dataclass(frozen=True)
class Found:
    """The state of everything upstream of one source.

    Attributes:
        connector: The connector of the wanted name; None: there is none.
        topics: The source's topics that exist, and existing topics with names that it would take.
        snapshots: Connector snapshots, by object id of the table.
        repeats: Repeated snapshots, by object id of the table.
        members: Memberships in the publication as an earlier inspection recorded them, by the table's name upstream;
            `database.publication.members` are those of now.
        first_snapshot_complete: The connector reported that its first snapshot is complete.
        database: The database; None for MySQL and MariaDB, which are not asked for their tables.
        writes_transactions: Connect's workers let connectors write in Kafka transactions; inspected before a connector is
            created, else True.
        connector_version: Version of the connector's class, as Debezium writes it; empty: unknown.
        objections: Why Kafka Connect would refuse the wanted configuration; inspected where the connector lacks it.
        signals: The connector's signal table, as it exists or may be created.
        relations: What the database has under the names of the tables that a statement declares; of other tables of MySQL and
            MariaDB only the kind is known.
        columns: The columns of each wanted table that exists, in order, by the table's name upstream.
        lake_types: Types of the lake's columns, by object id and column name; inspected only where there is no connector.
        lost: Values of declared tables that Debezium does not send unchanged, by the table's name upstream.
        multisets: Names upstream of tables whose table in the lake has no key; inspected where it matters.
        now_ms: The time of the inspection, epoch milliseconds; None: failed snapshots are retried at once.
        log: The log of PostgreSQL from which the topics were filled, as it was recorded last; None: none was recorded.
        applied_position: The highest log position that the lake had applied when `log` was last seen to be written, if known.
        altered: Statements of MySQL and MariaDB that may have changed rows without messages, by `database.table` in lower case.
        acting_keys: Foreign keys of MySQL and MariaDB that change rows of their table, in words, by the table's name upstream.
        shapes: Shapes of tables of PostgreSQL (`Shape`) as an earlier inspection recorded them, by the table's name upstream;
            `database.shapes` are those of now.
        log_settings: Settings of MySQL and MariaDB that say what the log has of a change, by name; a server need not have each.
        undefined: Tables of MySQL and MariaDB whose definition Debezium could not read, `database.table` in lower case.
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
    multisets: frozenset[str] = frozenset()
    now_ms: int | None = None
    log: FoundLog | None = None
    applied_position: int | None = None
    altered: Mapping[str, FoundAlteration] = field(default_factory=dict)
    acting_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    log_settings: Mapping[str, str] = field(default_factory=dict)
    undefined: frozenset[str] = frozenset()
