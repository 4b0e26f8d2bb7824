"""What users declare: connections, sources and tables, as the SQL says them and `mz_catalog.mz_objects` keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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


@dataclass(frozen=True)
class Connection:
    """`CREATE CONNECTION name TO KAFKA | SCHEMA REGISTRY (options)`.

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
class Source:
    """`CREATE SOURCE`: one reader over topics, or over a directory of recorded messages.

    `connection` names a Kafka connection; `path` is set instead for FROM FILES. `topics` is empty for FILES, whose topics
    are those of its tables. `transaction_topic` is kept for whole-transaction batches.
    """

    name: str
    format: Format
    connection: str | None = None
    path: str | None = None
    topics: tuple[str, ...] = ()
    transaction_topic: str | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)


class Envelope(StrEnum):
    """How a topic's messages say what changed (`envelopes.md`)."""

    UPSERT = "upsert"
    DEBEZIUM_UPSERT = "debezium-upsert"
    DEBEZIUM = "debezium"


@dataclass(frozen=True)
class DeclaredColumn:
    """A column of the contract in a statement's column list; `type` is Spark SQL text, lowercase."""

    name: str
    type: str


@dataclass(frozen=True)
class Table:
    """`CREATE TABLE namespace.name [(columns)] FROM SOURCE source (TOPIC …) [KEY (…)] ENVELOPE … [WITH (…)]`."""

    namespace: str
    name: str
    source: str
    topic: str
    envelope: Envelope
    columns: tuple[DeclaredColumn, ...] = ()
    key: tuple[str, ...] = ()
    options: Mapping[str, OptionValue] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """`namespace.name`."""
        return f"{self.namespace}.{self.name}"


Definition = Connection | Source | Table
