"""What users declare: connections, sources, tables, subscriptions, as SQL says them and `mz_catalog.mz_objects` keeps them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lakehold.spark_sql import quoted

NOT_A_NAME = frozenset({"AS", "ENVELOPE", "EXISTS", "FROM", "NOT", "ON", "SELECT", "TO", "USING", "WITH"})
"""Words that open a clause: where an object's name belongs they mean that the name was forgotten."""

_OBJECT_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_NOT_OF_A_TOPIC = re.compile(r"[^A-Za-z0-9._-]")


def object_text(name: str) -> str:
    """A name of an object as a statement says it: in backquotes where it must be."""
    if _OBJECT_NAME.fullmatch(name) and name.upper() not in NOT_A_NAME:
        return name
    return quoted(name)


def full_name_text(full_name: str) -> str:
    """`namespace.name` as a statement says it, part by part."""
    return ".".join(object_text(part) for part in full_name.split("."))


@dataclass(frozen=True)
class Secret:
    """The name of a secret; the value is looked up when it is needed and never stored."""

    name: str


OptionValue = str | int | bool | Secret
"""The value of an option in parentheses: text, number, truth or `SECRET 'NAME'`."""


class ConnectionType(StrEnum):
    """What a connection leads to."""

    KAFKA = "kafka"
    SCHEMA_REGISTRY = "schema-registry"
    POSTGRES = "postgres"
    MYSQL = "mysql"
    MARIADB = "mariadb"
    CONNECT = "connect"


@dataclass(frozen=True)
class Connection:
    """`CREATE CONNECTION name TO KAFKA | SCHEMA REGISTRY | POSTGRES | MYSQL | MARIADB | CONNECT (options)`.

    Option names are lowercase with `_` for spaces and dots kept.
    """

    name: str
    type: ConnectionType
    options: Mapping[str, OptionValue]


class FormatType(StrEnum):
    """How the bytes of keys and values are encoded."""

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
        database: What `connection` leads to: PostgreSQL, MySQL or MariaDB.
        connection: Name of the database's connection.
        connect: Name of the connection to Kafka Connect.
        topic_prefix: First part of the topics' names, and the connector's name.
        publication: PostgreSQL's, which lists the tables; None for the others.
        slot: The replication slot of PostgreSQL; None for the others.
        server_id: What MySQL and MariaDB tell their replicas apart by; None for PostgreSQL.
        partitions: Of each table's topic.
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
        """Where the connector tells of transactions."""
        return f"{self.topic_prefix}.transaction"

    def topic(self, upstream: str) -> str:
        """The topic of a table upstream, `schema.table`: what Kafka does not allow in a name is `_`, as Debezium writes it."""
        return f"{self.topic_prefix}.{_NOT_OF_A_TOPIC.sub('_', upstream)}"


@dataclass(frozen=True)
class Source:
    """`CREATE SOURCE`: one reader over topics, or over a directory of recorded messages.

    `connection` names a Kafka connection; `path` is set instead for FROM FILES. `topics` is empty for FILES, and for a source
    that captures a database: their topics are those of its tables. `transaction_topic` says where batches may end.
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
        """Names of the connections it goes through."""
        captured = (self.capture.connection, self.capture.connect) if self.capture is not None else ()
        return frozenset(name for name in (self.connection, self.format.registry, *captured) if name is not None)


class Envelope(StrEnum):
    """Name how a topic's messages say what changed (`envelopes.md`).

    Others than the grammar and the module that reads messages ask for its properties, not for its name.
    """

    NONE = "none"
    UPSERT = "upsert"
    DEBEZIUM_UPSERT = "debezium-upsert"
    DEBEZIUM = "debezium"

    @property
    def sql(self) -> str:
        """Return its words in a statement."""
        return self.value.replace("-", " ").upper()

    @property
    def has_keys(self) -> bool:
        """Return whether keys tell rows apart, so that a message replaces or deletes one: else each message adds a row."""
        return self is not Envelope.NONE

    @property
    def wraps_rows(self) -> bool:
        """Return whether rows are inside change events, with what happened to them: else a value is the row."""
        return self in (Envelope.DEBEZIUM_UPSERT, Envelope.DEBEZIUM)

    @property
    def needs_before(self) -> bool:
        """Return whether an update has to come with the row before it."""
        return self is Envelope.DEBEZIUM

    @property
    def has_positions(self) -> bool:
        """Return whether its changes stand at positions of the upstream's log, from which tables remember high-water marks."""
        return self.wraps_rows

    @property
    def skips_applied(self) -> bool:
        """Return whether changes that the high-water mark has passed are skipped: the others apply every change again."""
        return self is Envelope.DEBEZIUM


@dataclass(frozen=True)
class DeclaredColumn:
    """A column of the contract in a statement's column list; `type` is Spark SQL text, lowercase."""

    name: str
    type: str


class Metadata(StrEnum):
    """Name what a message has besides its value."""

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
        """Return the name of its column; the fields of a key without an alias have their own."""
        return self.alias or self.what.value


@dataclass(frozen=True)
class Table:
    """`CREATE TABLE namespace.name [(columns)] FROM SOURCE s (TOPIC … | TABLE …) [KEY (…)] [INCLUDE …] ENVELOPE … [WITH (…)]`.

    `upstream` is the table in the database of a source that captures one, `schema.table`; its topic follows from it.
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
        """`namespace.name`."""
        return f"{self.namespace}.{self.name}"

    @property
    def reads_keys(self) -> bool:
        """Return whether message keys are decoded: they tell rows apart, or become columns."""
        return self.envelope.has_keys or any(each.what is Metadata.KEY for each in self.include)


class OnLapse(StrEnum):
    """What happens to a subscriber whose hold was moved past what it had taken."""

    STOP = "stop"
    RESNAPSHOT = "resnapshot"


@dataclass(frozen=True)
class Subscription:
    """`CREATE SUBSCRIPTION name [INTO namespace.table] [WITH (…)] AS SUBSCRIBE …`.

    Attributes:
        name: Unique among subscriptions.
        into: Full name of the output table.
        subscribe: The SUBSCRIBE as written.
        tables: Full names of the tables that it reads.
        on_lapse: What happens when its hold was moved past what is published.
        retain_output_ms: How long the output keeps a timestamp; None: for ever.
        max_lag_ms: How far its hold may stay behind; None: the setting `default_max_lag_ms`.
    """

    name: str
    into: str
    subscribe: str
    tables: tuple[str, ...]
    on_lapse: OnLapse = OnLapse.STOP
    retain_output_ms: int | None = None
    max_lag_ms: int | None = None


Definition = Connection | Source | Table | Subscription
