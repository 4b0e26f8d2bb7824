"""The statements of lakehold's SQL, as values; `plan` decides the effects of a statement on a lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakehold.definitions import Connection, MaterializedView, ObjectKind, OptionValue, Source, Subscription, Table
from lakehold.holds.commands import NewHold
from lakehold.sql.text.dialect import StatementText
from lakehold.state.roles import Grant
from lakehold.subscribe.statement import Changes, Query, Subscribe
from lakehold.timeline.as_of import AsOf


@dataclass(frozen=True)
class CreateConnection:
    """A statement `CREATE CONNECTION [IF NOT EXISTS] name TO …`."""

    connection: Connection
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateSource:
    """A statement `CREATE SOURCE [IF NOT EXISTS] name FROM …`."""

    source: Source
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateTable:
    """A statement `CREATE TABLE [IF NOT EXISTS] namespace.name … FROM SOURCE …`."""

    table: Table
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateSubscription:
    """A statement `CREATE SUBSCRIPTION [IF NOT EXISTS] name … AS SUBSCRIBE …`."""

    subscription: Subscription
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateMaterializedView:
    """A statement `CREATE MATERIALIZED VIEW [IF NOT EXISTS] namespace.name … AS SELECT …`."""

    view: MaterializedView
    if_not_exists: bool = False


@dataclass(frozen=True)
class Drop:
    """A statement `DROP CONNECTION|SOURCE|TABLE|… [IF EXISTS] name [CASCADE | RESTRICT] [KEEP UPSTREAM]`.

    Spark drops tables that lakehold does not feed. `keep_upstream` is only for a connection or a source: the objects that
    its sources created upstream stay. `in_lake` says that the name was written with the lake's catalog. `restrict` is the
    default, written out.
    """

    kind: ObjectKind
    name: str
    if_exists: bool = False
    cascade: bool = False
    keep_upstream: bool = False
    in_lake: bool = False
    restrict: bool = False


@dataclass(frozen=True)
class AlterSource:
    """A statement `ALTER SOURCE name REPAIR | RESNAPSHOT`, which reconciles upstream objects, or re-snapshots all tables."""

    name: str
    resnapshot: bool


@dataclass(frozen=True)
class ExplainDefinition:
    """A statement `EXPLAIN CREATE … | DROP … | ALTER SOURCE …`, which explains effects without making them."""

    statement: (
        CreateConnection | CreateSource | CreateTable | CreateMaterializedView | Drop | AlterSource | AlterOptions
    )


@dataclass(frozen=True)
class Show:
    """A statement `SHOW CONNECTIONS|SOURCES|TABLES|SUBSCRIPTIONS|MATERIALIZED VIEWS`."""

    kind: ObjectKind


@dataclass(frozen=True)
class ShowCreate:
    """A statement `SHOW CREATE CONNECTION|SOURCE|TABLE|SUBSCRIPTION|MATERIALIZED VIEW name`.

    Spark shows tables that lakehold does not feed. `in_lake` says that the name was written with the lake's catalog.
    """

    kind: ObjectKind
    name: str
    in_lake: bool = False


@dataclass(frozen=True)
class CreateHold:
    """A statement `CREATE HOLD [[IF NOT EXISTS] [namespace.]name] ON table, … [AT t] [WITH (…)]`."""

    hold: NewHold
    if_not_exists: bool = False


@dataclass(frozen=True)
class AdvanceHold:
    """A statement `ALTER HOLD name ADVANCE [TO t]`; the name may have its namespace before it."""

    name: str
    to_ms: int | None = None


@dataclass(frozen=True)
class RenameHold:
    """A statement `ALTER HOLD name RENAME TO new`."""

    name: str
    new_name: str


@dataclass(frozen=True)
class DropHold:
    """A statement `DROP HOLD [IF EXISTS] name`."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class ShowHolds:
    """A statement `SHOW HOLDS`."""


@dataclass(frozen=True)
class ShowCreateHold:
    """A statement `SHOW CREATE HOLD name`."""

    name: str


@dataclass(frozen=True)
class CreateRole:
    """A statement `CREATE ROLE [IF NOT EXISTS] name [[WITH] SUPERUSER]`."""

    name: str
    is_superuser: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropRole:
    """A statement `DROP ROLE [IF EXISTS] name`."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class GrantPrivileges:
    """A statement `GRANT privilege ON object, … TO role, …`."""

    grants: tuple[Grant, ...]
    roles: tuple[str, ...]


@dataclass(frozen=True)
class RevokePrivileges:
    """A statement `REVOKE privilege ON object, … FROM role, …`."""

    grants: tuple[Grant, ...]
    roles: tuple[str, ...]


@dataclass(frozen=True)
class ShowRoles:
    """A statement `SHOW ROLES`."""


@dataclass(frozen=True)
class ShowGrants:
    """A statement `SHOW GRANTS [FOR role]`; without a role it shows the grants of all roles."""

    role: str | None = None


RoleStatement = CreateRole | DropRole | GrantPrivileges | RevokePrivileges | ShowRoles | ShowGrants


@dataclass(frozen=True)
class Begin:
    """A statement `[EXPLAIN] BEGIN`: statements up to COMMIT run together or not at all, or are only explained."""

    is_explained: bool = False


@dataclass(frozen=True)
class Commit:
    """A statement `COMMIT`."""


@dataclass(frozen=True)
class SelectAsOf:
    """A statement `SELECT … AS OF t`, which reads all its tables as they were at one time."""

    query: Query
    as_of: AsOf


@dataclass(frozen=True)
class SubscribeTo:
    """A statement `SUBSCRIBE …`."""

    subscribe: Subscribe


@dataclass(frozen=True)
class ExplainSubscribe:
    """A statement `EXPLAIN SUBSCRIBE …`, which explains how lakehold would read a SUBSCRIBE."""

    subscribe: Subscribe


@dataclass(frozen=True)
class PlacedChanges:
    """One `CHANGES(…)` of a statement.

    Attributes:
        changes: What it reads.
        start: Zero-based offset of its first character in the script.
        end_exclusive: Offset after its closing bracket; an alias is not included.
    """

    changes: Changes
    start: int
    end_exclusive: int


@dataclass(frozen=True)
class ForSpark:
    """Any other statement, which lakehold passes to Spark as written.

    Attributes:
        verb: The kind of change that the statement makes (`INSERT`, `DROP`, `RENAME`, …); empty if it changes no table.
        targets: Full names of the tables that the statement changes; only `FROM … INSERT … INSERT …` changes several.
        changes: Every `CHANGES(…)` in the statement, in the order of the text.
    """

    verb: str = ""
    targets: tuple[str, ...] = ()
    changes: tuple[PlacedChanges, ...] = ()


@dataclass(frozen=True)
class RetainHistory:
    """A statement `ALTER TABLE name SET (RETAIN HISTORY = duration)`, or RESET to the lake's setting (None).

    `in_lake` says that the name was written with the lake's catalog.
    """

    name: str
    retained_ms: int | None
    in_lake: bool = False


@dataclass(frozen=True)
class AlterOptions:
    """A statement `ALTER CONNECTION|SOURCE|SUBSCRIPTION|MATERIALIZED VIEW name SET (option = value, …)`.

    RESET sets options to their defaults (None).
    """

    kind: ObjectKind
    name: str
    options: Mapping[str, OptionValue | None]


Statement = (
    CreateConnection
    | CreateSource
    | CreateTable
    | CreateSubscription
    | CreateMaterializedView
    | RetainHistory
    | AlterOptions
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
    """A statement and its text in the script."""

    written: StatementText
    statement: Statement
