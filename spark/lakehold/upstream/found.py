"""What there is upstream at one moment. Values only: `look` fills them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehold.upstream.connect import ConnectorStatus


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
        is_for_all: It is FOR ALL TABLES.
        tables: Those whose changes it has, `schema.table`.
        listed: Those of them that it names itself, not by their schema.
    """

    is_own: bool
    is_for_all: bool
    tables: frozenset[str]
    listed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class FoundTable:
    """A table of the database.

    Attributes:
        replica_identity: What PostgreSQL writes of a row before a change: `d` its key, `f` all, `n` nothing, `i` an index.
        has_key: It has a primary key.
    """

    replica_identity: str
    has_key: bool


@dataclass(frozen=True)
class FoundDatabase:
    """A database of PostgreSQL.

    Attributes:
        wal_level: Its setting.
        position: How far its log is, in bytes.
        publication: The one that the source names, if it exists.
        slot: Of the replication slot that the source names its `wal_status`, `lost` among others; None: there is no slot.
        tables: The wanted tables that exist, by name.
        other_tables: Names of the rest, for a hint.
    """

    wal_level: str
    position: int
    publication: FoundPublication | None
    slot: str | None
    tables: Mapping[str, FoundTable]
    other_tables: tuple[str, ...] = ()

    def like(self, name: str) -> str | None:
        """The table that is not wanted and whose name is most like one that is; None: none is."""
        return next(iter(difflib.get_close_matches(name, self.other_tables, n=1)), None)


@dataclass(frozen=True)
class FoundSnapshot:
    """What the connector was told and said about the snapshot of one table.

    Attributes:
        is_first: It is in the connector's first snapshot.
        said_until: ... of which the notifications before this offset say nothing.
        asked: How often it was asked for.
        succeeded: The connector said that it is complete.
        failures: Why it is not, once for each time that the connector said so.
    """

    is_first: bool = False
    said_until: int = 0
    asked: int = 0
    succeeded: bool = False
    failures: tuple[str, ...] = ()

    def is_complete(self, first_said: int | None) -> bool:
        """Whether the topic has all of it; `first_said`: where the connector said that its first snapshot is complete."""
        return self.succeeded or (self.is_first and first_said is not None and first_said >= self.said_until)


NO_SNAPSHOT = FoundSnapshot()


@dataclass(frozen=True)
class Found:
    """What there is upstream of one source.

    Attributes:
        connector: None: there is none of its name.
        topics: Those that exist, of its own and of those that it would make.
        snapshots: By object id of the table.
        first_snapshot_complete: The connector said that its first snapshot is.
        database: None for MySQL and MariaDB, of which nothing is asked.
        writes_transactions: Connectors write in Kafka transactions; asked before one is made, else True.
    """

    connector: FoundConnector | None = None
    topics: frozenset[str] = frozenset()
    snapshots: Mapping[str, FoundSnapshot] = field(default_factory=dict)
    first_snapshot_complete: bool = False
    database: FoundDatabase | None = None
    writes_transactions: bool = True
