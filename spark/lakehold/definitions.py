"""Definitions: connections, sources, tables, subscriptions and views, as SQL declares and `mz_catalog.mz_objects` keeps them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lakehold.spark_sql import quoted
from lakehold.table_layout import NEWEST_FORMAT

_NOT_OF_A_TOPIC = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class Secret:
    """The name of a secret; the value is read from the environment at each use and never stored."""

    name: str


OptionValue = str | int | bool | Secret
"""The value of an option in parentheses: text, number, truth or `SECRET 'NAME'`."""


def plain_option_name(name: str) -> str:
    """Convert the name of an option to the one under which definitions keep it: `ssl.mode` is `ssl_mode`."""
    return name.replace(".", "_")


class ConnectionType(StrEnum):
    """The kind of system that a connection leads to."""

    KAFKA = "kafka"
    SCHEMA_REGISTRY = "schema-registry"
    POSTGRES = "postgres"
    MYSQL = "mysql"
    MARIADB = "mariadb"
    CONNECT = "connect"


@dataclass(frozen=True)
class Connection:
    """`CREATE CONNECTION name TO KAFKA | SCHEMA REGISTRY | POSTGRES | MYSQL | MARIADB | CONNECT (options)`.

    Option names are lowercase with `_` for spaces and dots.
    """

    name: str
    type: ConnectionType
    options: Mapping[str, OptionValue]


class FormatType(StrEnum):
    """The encoding of keys and values."""

    AVRO = "avro"
    JSON = "json"


@dataclass(frozen=True)
class Format:
    """`FORMAT AVRO USING SCHEMA REGISTRY CONNECTION r` or `FORMAT JSON`."""

    type: FormatType
    registry: str | None = None


@dataclass(frozen=True)
class Capture:
    """`FROM POSTGRES | MYSQL | MARIADB CONNECTION c (…) VIA CONNECT … INTO KAFKA …`: one connector a database.

    Attributes:
        database: The database at `connection`: PostgreSQL, MySQL or MariaDB.
        connection: Name of the database's connection.
        connect: Name of the connection to Kafka Connect.
        topic_prefix: First part of the topics' names, and the connector's name.
        publication: PostgreSQL's publication, which lists the tables; None for the others.
        slot: PostgreSQL's replication slot; None for the others.
        server_id: The number by which MySQL and MariaDB distinguish their replicas; None for PostgreSQL.
        partitions: Number of partitions of each table's topic.
    """

    database: ConnectionType
    connection: str
    connect: str
    topic_prefix: str
    publication: str | None = None
    slot: str | None = None
    server_id: int | None = None
    partitions: int = 1

    @property
    def transaction_topic(self) -> str:
        """Return the topic to which the connector reports transactions."""
        return f"{self.topic_prefix}.transaction"

    def topic(self, upstream: str) -> str:
        """Return the topic of a table `schema.table`, with `_` for what Kafka allows in no topic name, as Debezium writes it."""
        return f"{self.topic_prefix}.{_NOT_OF_A_TOPIC.sub('_', upstream)}"


@dataclass(frozen=True)
class Source:
    """`CREATE SOURCE`: one reader over topics, or over a directory of recorded messages.

    `connection` names a Kafka connection; `path` is set instead for FROM FILES. `topics` is empty for FILES and captured
    databases: their topics are those of their tables. `transaction_topic` is the topic that shows where batches may end.
    """

    name: str
    format: Format
    connection: str | None = None
    path: str | None = None
    topics: tuple[str, ...] = ()
    transaction_topic: str | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    capture: Capture | None = None

    @property
    def connections(self) -> frozenset[str]:
        """Return the names of the connections that the source uses."""
        captured = (self.capture.connection, self.capture.connect) if self.capture is not None else ()
        return frozenset(name for name in (self.connection, self.format.registry, *captured) if name is not None)


class ObjectKind(StrEnum):
    """The kinds of definitions, as SHOW and DROP name them."""

    CONNECTION = "connection"
    SOURCE = "source"
    TABLE = "table"
    SUBSCRIPTION = "subscription"
    MATERIALIZED_VIEW = "materialized view"


class Envelope(StrEnum):
    """The way in which a topic's messages describe changes; `docs/reference/envelopes.md` compares them.

    NONE: each message is a row to add. UPSERT: the value of a message is the newest row of its key; a message without a value
    deletes the row. DEBEZIUM_UPSERT: messages are Debezium's change events, and the newest row of each key counts. DEBEZIUM:
    change events that also contain the row before the change. DEBEZIUM_FLATTENED: rows that Debezium took out of its change
    events, which say whether they were deleted.

    Only the grammar and the module that reads messages test its name; all others test its properties.
    """

    NONE = "none"
    UPSERT = "upsert"
    DEBEZIUM_UPSERT = "debezium-upsert"
    DEBEZIUM_FLATTENED = "debezium-flattened"
    DEBEZIUM = "debezium"

    @property
    def sql(self) -> str:
        """Return the words of the envelope in a statement."""
        return self.value.replace("-", " ").upper()

    @property
    def has_keys(self) -> bool:
        """Return whether keys identify rows, so that a message replaces or deletes a row; otherwise each message adds one."""
        return self is not Envelope.NONE

    @property
    def wraps_rows(self) -> bool:
        """Return whether messages are change events that contain rows; otherwise the value of a message is the row."""
        return self in (Envelope.DEBEZIUM_UPSERT, Envelope.DEBEZIUM)

    @property
    def is_flattened(self) -> bool:
        """Return whether the value of a message is a row that says itself whether it was deleted."""
        return self is Envelope.DEBEZIUM_FLATTENED

    @property
    def needs_before(self) -> bool:
        """Return whether an update must contain the row before it."""
        return self is Envelope.DEBEZIUM

    @property
    def takes_keyless(self) -> bool:
        """Return whether rows may have no key: a change contains the rows before and after it, and counts once."""
        return self.needs_before and self.skips_applied

    @property
    def has_positions(self) -> bool:
        """Return whether changes have positions in the upstream's log, so that tables keep high-water marks."""
        return self.wraps_rows

    @property
    def skips_applied(self) -> bool:
        """Return whether changes at or below the high-water mark are skipped; the other envelopes apply them again."""
        return self is Envelope.DEBEZIUM


@dataclass(frozen=True)
class DeclaredColumn:
    """A column in a statement's column list; `type` is Spark SQL text, lowercase."""

    name: str
    type: str


class Metadata(StrEnum):
    """A part of a message other than its value."""

    KEY = "key"
    PARTITION = "partition"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    HEADERS = "headers"


@dataclass(frozen=True)
class Included:
    """One item of `INCLUDE KEY | PARTITION | OFFSET | TIMESTAMP | HEADERS [AS alias], …`."""

    what: Metadata
    alias: str | None = None

    @property
    def name(self) -> str:
        """Return the name of the item's column; the fields of a key without an alias keep their own names."""
        return self.alias or self.what.value


@dataclass(frozen=True)
class Table:
    """`CREATE TABLE namespace.name [(columns)] FROM SOURCE s (TOPIC … | TABLE …) [KEY (…)] [INCLUDE …] ENVELOPE … [WITH (…)]`.

    `upstream` is the table `schema.table` in the database of a source that captures one; its topic follows from it.
    """

    namespace: str
    name: str
    source: str
    topic: str
    envelope: Envelope
    columns: tuple[DeclaredColumn, ...] = ()
    key: tuple[str, ...] = ()
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    upstream: str | None = None
    include: tuple[Included, ...] = ()

    @property
    def full_name(self) -> str:
        """Return `namespace.name`."""
        return f"{self.namespace}.{self.name}"

    @property
    def single_key_names(self) -> tuple[str, ...]:
        """Return the names that a column list may use for a key that is not a record."""
        return ("key", *(each.alias for each in self.include if each.what is Metadata.KEY and each.alias))

    @property
    def reads_keys(self) -> bool:
        """Return whether message keys are decoded: they identify rows, or become columns."""
        return self.envelope.has_keys or any(each.what is Metadata.KEY for each in self.include)

    @property
    def applies_truncates(self) -> bool:
        """Return whether TRUNCATE empties the table: by default if it is a captured one, which mirrors its database."""
        return self.options.get("truncate", "apply" if self.upstream is not None else "ignore") == "apply"


class OnLapse(StrEnum):
    """The reaction of a subscriber whose hold was moved past its position, so that changes are lost: an error, or a new snapshot.

    A *hold* is an object of the lake that keeps tables' history from a timestamp on.
    """

    STOP = "stop"
    RESNAPSHOT = "resnapshot"


@dataclass(frozen=True)
class Subscription:
    """`CREATE SUBSCRIPTION name [INTO namespace.table] [WITH (…)] AS SUBSCRIBE …`.

    Attributes:
        name: Unique among subscriptions.
        into: Full name of the output table.
        subscribe: The SUBSCRIBE as written, without the name of the lake's catalog.
        tables: Full names of the tables that it reads.
        on_lapse: What happens when its hold was moved past what is published.
        retain_output_ms: How long the output keeps a timestamp; None: for ever.
        max_lag_ms: How far its hold may lag behind its tables before maintenance moves it; None: the setting
            `default_max_lag_ms`.
    """

    name: str
    into: str
    subscribe: str
    tables: tuple[str, ...]
    on_lapse: OnLapse = OnLapse.STOP
    retain_output_ms: int | None = None
    max_lag_ms: int | None = None


class OnKeyViolation(StrEnum):
    """The reaction of a view whose query has several rows with one key: it stops, or it keeps them all and counts the key."""

    STOP = "stop"
    KEEP = "keep"


class Refresh(StrEnum):
    """The timestamps that a refresh of a view shows: each of its tables' timestamps, or only the latest one."""

    EACH_TIMESTAMP = "each timestamp"
    LATEST = "latest"


@dataclass(frozen=True)
class MaterializedView:
    """`CREATE MATERIALIZED VIEW namespace.name [KEY (…)] [WITH (…)] AS SELECT …`: a table that lakehold keeps equal to a query.

    Attributes:
        namespace: Namespace of the table.
        name: Name of the table.
        query: The query as written, without the name of the lake's catalog.
        tables: Full names of the tables that it reads.
        key: Columns of which each row of the result has other values; empty: the table keeps equal rows, too.
        on_key_violation: What happens when several rows have the same key.
        on_lapse: What happens when its hold was moved past what is refreshed.
        refresh: Which timestamps a refresh shows.
        retain_history_ms: How much of the table's history stays readable; None: the setting `retain_history_ms`.
        max_lag_ms: How far its hold may lag behind its tables before maintenance moves it; None: the setting
            `default_max_lag_ms`.
        format_version: The version of Iceberg's format that the table has.
        partitioned_by, sorted_by: The layout of its files (`table_layout.py`); empty: buckets and order of the key.
    """

    namespace: str
    name: str
    query: str
    tables: tuple[str, ...]
    key: tuple[str, ...] = ()
    on_key_violation: OnKeyViolation = OnKeyViolation.STOP
    on_lapse: OnLapse = OnLapse.STOP
    refresh: Refresh = Refresh.EACH_TIMESTAMP
    retain_history_ms: int | None = None
    max_lag_ms: int | None = None
    format_version: int = NEWEST_FORMAT
    partitioned_by: str = ""
    sorted_by: str = ""

    @property
    def full_name(self) -> str:
        """Return `namespace.name`."""
        return f"{self.namespace}.{self.name}"

    @property
    def unique_key(self) -> tuple[str, ...]:
        """Return the key, if no two rows of the table have the same; empty without a key, or if it keeps all rows."""
        return self.key if self.on_key_violation is OnKeyViolation.STOP else ()

    @property
    def into(self) -> str:
        """Return the full name of the table that it fills."""
        return self.full_name

    @property
    def subscribe(self) -> str:
        """Return the SUBSCRIBE whose output is merged into the table: diffs, or the rows of each key before and after."""
        key = ", ".join(map(quoted, self.unique_key))
        envelope = f" ENVELOPE DEBEZIUM (KEY ({key}))" if key else ""
        return f"SUBSCRIBE ({self.query}){envelope}"


Definition = Connection | Source | Table | Subscription | MaterializedView

Derived = Subscription | MaterializedView
"""Definitions whose table lakehold writes from the output of a SUBSCRIBE."""


def name_of(definition: Definition) -> str:
    """Return the name by which a definition is found among those of its kind: the full name if a table belongs to it."""
    return definition.full_name if isinstance(definition, Table | MaterializedView) else definition.name


def described(definition: Definition) -> str:
    """Return a definition's kind and name, for messages."""
    kinds = {
        Connection: "connection",
        Source: "source",
        Table: "table",
        Subscription: "subscription",
        MaterializedView: "materialized view",
    }
    return f'{kinds[type(definition)]} "{name_of(definition)}"'
