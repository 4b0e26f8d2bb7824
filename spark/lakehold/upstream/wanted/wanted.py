"""Definitions -> what should exist upstream. Pure: calls no system and shows no secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakehold.definitions import Capture, ConnectionType, Source, Table
from lakehold.model.lake_definitions import Entry
from lakehold.model.offsets import Offsets
from lakehold.upstream.wanted import connector_config
from lakehold.upstream.wanted.connections import UpstreamConnections
from lakehold.upstream.wanted.connector_config import SideTopics

MARK = "lakehold.source"
"""The connector option that holds the object id of the connector's source. Connect keeps options that nothing reads."""

_FOREVER = {"retention.ms": "-1", "cleanup.policy": "delete"}


@dataclass(frozen=True)
class CapturedTable:
    """A table of the lake, and the table upstream that feeds it.

    Attributes:
        object_id: Object id of the lake's table; also names its connector snapshot.
        full_name: Full name of the lake's table.
        upstream: Name of the table in the database, `schema.table`.
        topic: The topic with the table's changes.
        needs_before: Whether the table's envelope needs the row from before an update.
        key: Columns that KEY names; empty: the columns of the message key.
        columns: Columns that a column list, or the table's contract, names; empty: all.
    """

    object_id: str
    full_name: str
    upstream: str
    topic: str
    needs_before: bool
    key: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Topic:
    """A topic to create. The options are the broker's: `retention.ms` and its like."""

    name: str
    partitions: int = 1
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class InLake:
    """The progress of the lake with one table.

    Attributes:
        read: The next offset to read of each partition of the table's topic.
        repeated: The signal that requested the last repeated snapshot which the lake has in full; None: there was none.
    """

    read: Offsets
    repeated: str | None = None


NOT_STARTED = InLake({})


@dataclass(frozen=True)
class Wanted:
    """The upstream objects that one source wants. A source without tables wants none, so that lakehold removes what exists.

    Attributes:
        source: Name of the source.
        source_id: Object id of the source.
        capture: Names of everything upstream.
        tables: The tables to capture.
        config: Configuration of the connector; holds the database's password.
        topics: Topics that the connector writes and reads, the topic of signals first.
        applied_position: The highest log position that the lake has applied to these tables; None: none is known.
        released: Topics of tables that are removed.
        declared: Object ids of the tables that a statement declares; None: no statement declares or drops any.
        lake: How far the lake is with each table, by object id; without the tables that no batch has begun.
        seen_upstream_ms: Time of the last inspection, epoch milliseconds, as the database was given it; None: it was given none.
    """

    source: str
    source_id: str
    capture: Capture
    tables: tuple[CapturedTable, ...]
    config: Mapping[str, str] = field(repr=False)
    topics: tuple[Topic, ...]
    applied_position: int | None = None
    released: tuple[str, ...] = ()
    declared: frozenset[str] | None = None
    lake: Mapping[str, InLake] = field(default_factory=dict)
    seen_upstream_ms: int | None = None

    @property
    def connector(self) -> str:
        """Return the name of the connector."""
        return self.capture.topic_prefix

    @property
    def signal_table(self) -> str:
        """Return the table in which the connector marks its snapshot of a joining table, if the database can have one."""
        return connector_config.signal_table_of(self.capture.slot or str(self.capture.server_id))

    @property
    def upstream_tables(self) -> tuple[str, ...]:
        """Return the captured tables as the database names them."""
        return tuple(sorted({table.upstream for table in self.tables}))


def wanted(  # noqa: PLR0913 - the definitions, what they lead to, and what the lake has
    source: Entry[Source],
    capture: Capture,
    tables: Sequence[Entry[Table]],
    connections: UpstreamConnections,
    *,
    applied_position: int | None = None,
    released: Sequence[str] = (),
    declared: frozenset[str] | None = None,
    lake: Mapping[str, InLake] | None = None,
    seen_upstream_ms: int | None = None,
) -> Wanted:
    """Compute what `source` with these `tables` wants upstream."""
    captured = tuple(
        CapturedTable(
            entry.object_id,
            entry.definition.full_name,
            entry.definition.upstream or "",
            entry.definition.topic,
            entry.definition.envelope.needs_before,
            entry.definition.key,
            tuple(column.name for column in entry.definition.columns),
        )
        for entry in tables
    )
    kept = {table.topic for table in captured}
    return Wanted(
        source=source.definition.name,
        source_id=source.object_id,
        capture=capture,
        tables=captured,
        config=_config(source, capture, [entry.definition for entry in tables], connections),
        topics=_topics(capture, captured),
        applied_position=applied_position,
        released=tuple(sorted(set(released) - kept)),
        declared=declared,
        lake=lake or {},
        seen_upstream_ms=seen_upstream_ms,
    )


def _config(
    source: Entry[Source], capture: Capture, tables: Sequence[Table], connections: UpstreamConnections
) -> dict[str, str]:
    side = SideTopics(capture.topic_prefix)
    listed = connector_config.debezium(capture.topic_prefix, [table.upstream or "" for table in tables])
    brokers, client = connections.kafka.brokers, connections.kafka.java
    if capture.database is ConnectionType.POSTGRES:
        database = {
            **connector_config.postgres(
                connections.login, publication=capture.publication or "", slot=capture.slot or ""
            ),
            **connector_config.as_written(listed),
        }
    else:
        database = {
            **connector_config.mysql(
                connections.login,
                server_id=capture.server_id or 0,
                is_mariadb=capture.database is ConnectionType.MARIADB,
            ),
            **connector_config.schema_history(side, brokers, client),
        }
    truncates = any(table.applies_truncates for table in tables)
    return {
        MARK: source.object_id,
        **listed,
        **database,
        **connector_config.ad_hoc_snapshots(side, brokers, client),
        **connections.converter,
        **(connector_config.SENDS_TRUNCATES if truncates else {}),
    }


def _topics(capture: Capture, tables: Sequence[CapturedTable]) -> tuple[Topic, ...]:
    side = SideTopics(capture.topic_prefix)
    is_postgres = capture.database is ConnectionType.POSTGRES
    history = [] if is_postgres else [Topic(side.schema_history, options=_FOREVER)]
    return (
        Topic(side.signals, options=_FOREVER),
        Topic(side.notifications, options=_FOREVER),
        Topic(side.heartbeats, options={"cleanup.policy": "compact"}),
        *history,
        # BEGIN and END of a transaction have different keys: only one partition keeps them in order.
        Topic(capture.transaction_topic),
        *(Topic(name, capture.partitions) for name in sorted({table.topic for table in tables})),
    )
