"""The statements of lakehold's SQL. Values only: what a statement means for a lake is `plan`'s business."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakehold.definitions import Connection, Source, Table
from lakehold.subscribe.statement import Query, Subscribe


class ObjectKind(StrEnum):
    """The kinds of definitions, as SHOW and DROP name them."""

    CONNECTION = "connection"
    SOURCE = "source"
    TABLE = "table"


@dataclass(frozen=True)
class CreateConnection:
    """`CREATE CONNECTION [IF NOT EXISTS] name TO …`."""

    connection: Connection
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateSource:
    """`CREATE SOURCE [IF NOT EXISTS] name FROM …`."""

    source: Source
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateTable:
    """`CREATE TABLE [IF NOT EXISTS] namespace.name … FROM SOURCE …`."""

    table: Table
    if_not_exists: bool = False


@dataclass(frozen=True)
class Drop:
    """`DROP CONNECTION|SOURCE|TABLE [IF EXISTS] name [CASCADE]`; other tables are Spark's to drop."""

    kind: ObjectKind
    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class Show:
    """`SHOW CONNECTIONS|SOURCES|TABLES`."""

    kind: ObjectKind


@dataclass(frozen=True)
class ShowCreate:
    """`SHOW CREATE CONNECTION|SOURCE|TABLE name`; a table that lakehold does not feed is Spark's to show."""

    kind: ObjectKind
    name: str


@dataclass(frozen=True)
class SelectAsOf:
    """`SELECT … AS OF t`: all its tables as they were at `as_of_ms`."""

    query: Query
    as_of_ms: int


@dataclass(frozen=True)
class SubscribeTo:
    """`SUBSCRIBE …`."""

    subscribe: Subscribe


@dataclass(frozen=True)
class ExplainSubscribe:
    """`EXPLAIN SUBSCRIBE …`: how it would be read; nothing is."""

    subscribe: Subscribe


@dataclass(frozen=True)
class ForSpark:
    """Everything else, passed on as written.

    Attributes:
        verb: What the statement does to `target` by hand (`INSERT`, `DELETE`, …); empty when it changes no rows.
        target: Full name of the table it changes.
    """

    verb: str = ""
    target: str = ""


Statement = (
    CreateConnection
    | CreateSource
    | CreateTable
    | Drop
    | Show
    | ShowCreate
    | SelectAsOf
    | SubscribeTo
    | ExplainSubscribe
    | ForSpark
)
