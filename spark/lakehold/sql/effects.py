"""What a statement does, one frozen dataclass an effect. A plan lists them in the order they happen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakehold.definitions import Definition, Subscription, Table
from lakehold.holds.commands import NewHold
from lakehold.model.definitions import Entry
from lakehold.sql.statements import RoleStatement
from lakehold.state.holds import Hold, Holds
from lakehold.subscribe.statement import Query, Subscribe


@dataclass(frozen=True)
class PutDefinition:
    """Add `definition`; `sql` is the statement as written."""

    definition: Definition
    sql: str


@dataclass(frozen=True)
class ChangeTable:
    """Put `table` where the definition of its name is, which stays the same object."""

    table: Table


@dataclass(frozen=True)
class DropDefinitions:
    """Remove `definitions`, users before what they use. All puts and drops of a plan are one commit."""

    definitions: tuple[Definition, ...]


@dataclass(frozen=True)
class Converge:
    """Bring what is upstream of a source to what is declared, behind the commit; `anew`: with a new snapshot of all tables."""

    source: str
    anew: bool = False


@dataclass(frozen=True)
class Release:
    """Take away what is upstream of a source for tables that go, or for all of it, before the commit."""

    source: str


@dataclass(frozen=True)
class ExplainPlan:
    """Answer with what the effects of `plan` would do."""

    plan: Plan


@dataclass(frozen=True)
class DropIcebergTable:
    """Drop the Iceberg table and its data, if it was ever made."""

    full_name: str


@dataclass(frozen=True)
class BeginSubscription:
    """Hold what a new subscription reads: before it is declared, so that it is not there without its hold."""

    subscription: Subscription


@dataclass(frozen=True)
class EndSubscription:
    """Let go of what a dropped subscription holds, and of its output table if `with_output`."""

    entry: Entry[Subscription]
    with_output: bool


@dataclass(frozen=True)
class ListSubscriptions:
    """Answer with how far every subscription is."""


@dataclass(frozen=True)
class PutHold:
    """Make a hold."""

    hold: NewHold


@dataclass(frozen=True)
class MoveHold:
    """Advance a hold; None: to where retention keeps its tables."""

    name: str
    to_ms: int | None


@dataclass(frozen=True)
class NameHold:
    """Give a hold another name."""

    hold: Hold
    new_name: str


@dataclass(frozen=True)
class DropHolds:
    """Let go of what holds keep; their tables may go, too."""

    holds: Holds


@dataclass(frozen=True)
class ListHolds:
    """Answer with the holds, and with the names of who keeps and who made them."""

    holds: Holds


@dataclass(frozen=True)
class ManageRoles:
    """Make, drop, grant to or show roles, as the statement says."""

    statement: RoleStatement


@dataclass(frozen=True)
class RunOnSpark:
    """Have Spark run the text in `[start, end_exclusive)` of the script."""

    sql: str
    start: int
    end_exclusive: int


@dataclass(frozen=True)
class ReadAsOf:
    """Have Spark run a query over its tables as they were at `as_of_ms`."""

    query: Query
    as_of_ms: int


@dataclass(frozen=True)
class ReadChanges:
    """Answer with what a SUBSCRIBE gives now."""

    subscribe: Subscribe


@dataclass(frozen=True)
class ExplainChanges:
    """Answer with how a SUBSCRIBE would be read."""

    subscribe: Subscribe


@dataclass(frozen=True)
class Rows:
    """Answer with rows that the definitions alone give."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Notice:
    """Tell the person something."""

    text: str


DefinitionEffect = PutDefinition | ChangeTable | DropDefinitions
HoldEffect = PutHold | MoveHold | NameHold | DropHolds
UpstreamEffect = Converge | Release
SubscriptionEffect = BeginSubscription | EndSubscription | ListSubscriptions
Effect = (
    DefinitionEffect
    | HoldEffect
    | SubscriptionEffect
    | UpstreamEffect
    | ExplainPlan
    | ListHolds
    | ManageRoles
    | DropIcebergTable
    | RunOnSpark
    | ReadAsOf
    | ReadChanges
    | ExplainChanges
    | Rows
    | Notice
)


@dataclass(frozen=True)
class Plan:
    """The effects of one statement, in order; none when there is nothing to do."""

    effects: tuple[Effect, ...] = ()

    @property
    def definition_effects(self) -> tuple[DefinitionEffect, ...]:
        """Those that change the definitions."""
        return tuple(e for e in self.effects if isinstance(e, DefinitionEffect))
