"""The statements of lakehold's SQL. Values only: what a statement means for a lake is `plan`'s business."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakehold.definitions import Connection, Source, Subscription, Table
from lakehold.holds.commands import NewHold
from lakehold.sql.dialect import StatementText
from lakehold.state.roles import Grant
from lakehold.subscribe.statement import Query, Subscribe


class ObjectKind(StrEnum):
    """The kinds of definitions, as SHOW and DROP name them."""

    CONNECTION = "connection"
    SOURCE = "source"
    TABLE = "table"
    SUBSCRIPTION = "subscription"


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
class CreateSubscription:
    """`CREATE SUBSCRIPTION [IF NOT EXISTS] name … AS SUBSCRIBE …`."""

    subscription: Subscription
    if_not_exists: bool = False


@dataclass(frozen=True)
class Drop:
    """`DROP CONNECTION|SOURCE|TABLE|SUBSCRIPTION [IF EXISTS] name [CASCADE]`; other tables are Spark's to drop.

    `keep_upstream` is `KEEP UPSTREAM` behind a connection or a source: what sources made upstream stays.
    """

    kind: ObjectKind
    name: str
    if_exists: bool = False
    cascade: bool = False
    keep_upstream: bool = False


@dataclass(frozen=True)
class AlterSource:
    """`ALTER SOURCE name REPAIR | RESNAPSHOT`: what is upstream as the definitions say, or all of it snapshotted anew."""

    name: str
    resnapshot: bool


@dataclass(frozen=True)
class ExplainDefinition:
    """`EXPLAIN CREATE … | DROP … | ALTER SOURCE …`: what the statement would do; nothing is done."""

    statement: CreateConnection | CreateSource | CreateTable | Drop | AlterSource


@dataclass(frozen=True)
class Show:
    """`SHOW CONNECTIONS|SOURCES|TABLES|SUBSCRIPTIONS`."""

    kind: ObjectKind


@dataclass(frozen=True)
class ShowCreate:
    """`SHOW CREATE CONNECTION|SOURCE|TABLE|SUBSCRIPTION name`; a table that lakehold does not feed is Spark's to show."""

    kind: ObjectKind
    name: str


@dataclass(frozen=True)
class CreateHold:
    """`CREATE HOLD [[IF NOT EXISTS] [namespace.]name] ON table, … [AT t] [WITH (…)]`."""

    hold: NewHold
    if_not_exists: bool = False


@dataclass(frozen=True)
class AdvanceHold:
    """`ALTER HOLD name ADVANCE [TO t]`; the name may have its namespace before it."""

    name: str
    to_ms: int | None = None


@dataclass(frozen=True)
class RenameHold:
    """`ALTER HOLD name RENAME TO new`."""

    name: str
    new_name: str


@dataclass(frozen=True)
class DropHold:
    """`DROP HOLD [IF EXISTS] name`."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class ShowHolds:
    """`SHOW HOLDS`."""


@dataclass(frozen=True)
class ShowCreateHold:
    """`SHOW CREATE HOLD name`."""

    name: str


@dataclass(frozen=True)
class CreateRole:
    """`CREATE ROLE [IF NOT EXISTS] name [[WITH] SUPERUSER]`."""

    name: str
    is_superuser: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropRole:
    """`DROP ROLE [IF EXISTS] name`."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class GrantPrivileges:
    """`GRANT privilege ON object, … TO role, …`."""

    grants: tuple[Grant, ...]
    roles: tuple[str, ...]


@dataclass(frozen=True)
class RevokePrivileges:
    """`REVOKE privilege ON object, … FROM role, …`."""

    grants: tuple[Grant, ...]
    roles: tuple[str, ...]


@dataclass(frozen=True)
class ShowRoles:
    """`SHOW ROLES`."""


@dataclass(frozen=True)
class ShowGrants:
    """`SHOW GRANTS [FOR role]`; None: those of all roles."""

    role: str | None = None


RoleStatement = CreateRole | DropRole | GrantPrivileges | RevokePrivileges | ShowRoles | ShowGrants


@dataclass(frozen=True)
class Begin:
    """`[EXPLAIN] BEGIN`: what follows up to COMMIT happens together or not at all, or is only told."""

    is_explained: bool = False


@dataclass(frozen=True)
class Commit:
    """`COMMIT`."""


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
        verb: What the statement does to `target` by hand (`INSERT`, `DROP`, `RENAME`, …); empty when it does nothing to one.
        target: Full name of the table it changes.
    """

    verb: str = ""
    target: str = ""


@dataclass(frozen=True)
class RetainHistory:
    """`ALTER TABLE name SET (RETAIN HISTORY = duration)`; `retained_ms` None: RESET, back to the lake's setting."""

    name: str
    retained_ms: int | None


Statement = (
    CreateConnection
    | CreateSource
    | CreateTable
    | CreateSubscription
    | RetainHistory
    | AlterSource
    | ExplainDefinition
    | Drop
    | Show
    | ShowCreate
    | CreateHold
    | AdvanceHold
    | RenameHold
    | DropHold
    | ShowHolds
    | ShowCreateHold
    | RoleStatement
    | Begin
    | Commit
    | SelectAsOf
    | SubscribeTo
    | ExplainSubscribe
    | ForSpark
)


@dataclass(frozen=True)
class ParsedStatement:
    """A statement and where it was written."""

    written: StatementText
    statement: Statement
