"""Effects of statements, one frozen dataclass for each kind. A plan lists the effects of a statement in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakehold.definitions import Definition, Derived
from lakehold.holds.commands import NewHold
from lakehold.model.lake_definitions import DerivedEntry
from lakehold.sql.statements import PlacedChanges, RoleStatement
from lakehold.state.holds import Hold, Holds
from lakehold.subscribe.statement import Query, Subscribe
from lakehold.timeline.as_of import AsOf


@dataclass(frozen=True)
class PutDefinition:
    """The addition of a definition; `sql` is the statement as written."""

    definition: Definition
    sql: str


@dataclass(frozen=True)
class ChangeDefinition:
    """The replacement of an object's definition by `definition`; the object keeps its id."""

    definition: Definition


@dataclass(frozen=True)
class DropDefinitions:
    """The removal of definitions, each after those that use it. All changes of definitions in a plan are one commit."""

    definitions: tuple[Definition, ...]


@dataclass(frozen=True)
class Reconcile:
    """The reconciliation of a source's upstream objects after the commit; `resnapshot`: with a re-snapshot of all tables."""

    source: str
    resnapshot: bool = False


@dataclass(frozen=True)
class Release:
    """The removal, before the commit, of upstream objects for dropped tables of a source, or for the whole source."""

    source: str


@dataclass(frozen=True)
class ExplainPlan:
    """An answer that explains the effects of `plan` without making them."""

    plan: Plan


@dataclass(frozen=True)
class DropIcebergTable:
    """The drop of the Iceberg table of a definition with its data, if it exists."""

    full_name: str
    object_id: str


@dataclass(frozen=True)
class BeginSubscription:
    """The creation of a new subscription's or view's hold before it is declared, so that it never exists without."""

    definition: Derived


@dataclass(frozen=True)
class SetMaxLag:
    """The change, before the commit, of the MAX LAG of a subscription's or view's hold to that of `definition`."""

    definition: Derived
    object_id: str


@dataclass(frozen=True)
class EndSubscription:
    """The drop of a dropped subscription's or view's hold, and of its table if `with_output`."""

    entry: DerivedEntry
    with_output: bool


@dataclass(frozen=True)
class ListSubscriptions:
    """An answer that lists the subscriptions and their progress."""


@dataclass(frozen=True)
class ListViews:
    """An answer that lists the materialized views and their progress."""


@dataclass(frozen=True)
class PutHold:
    """The creation of a hold."""

    hold: NewHold


@dataclass(frozen=True)
class MoveHold:
    """The advance of a hold to `to_ms`; None: to the first time that retention keeps readable."""

    name: str
    to_ms: int | None


@dataclass(frozen=True)
class NameHold:
    """The change of a hold's name."""

    hold: Hold
    new_name: str


@dataclass(frozen=True)
class DropHolds:
    """The drop of holds, maybe together with their tables."""

    holds: Holds


@dataclass(frozen=True)
class ListHolds:
    """An answer that lists the holds, with the names of their subscribers and owners."""

    holds: Holds


@dataclass(frozen=True)
class ManageRoles:
    """The effect of a statement on roles: it creates, drops, grants to or shows them."""

    statement: RoleStatement


@dataclass(frozen=True)
class RunOnSpark:
    """The run of a statement by Spark: the text in `[start, end_exclusive)` of the script, which reads `changes`."""

    sql: str
    start: int
    end_exclusive: int
    changes: tuple[PlacedChanges, ...] = ()


@dataclass(frozen=True)
class ReadAsOf:
    """An answer by Spark to a query over its tables as they were at one time."""

    query: Query
    as_of: AsOf


@dataclass(frozen=True)
class ReadChanges:
    """An answer with the rows of a SUBSCRIBE up to now."""

    subscribe: Subscribe


@dataclass(frozen=True)
class ExplainChanges:
    """An answer that explains how lakehold would read a SUBSCRIBE."""

    subscribe: Subscribe


@dataclass(frozen=True)
class Rows:
    """An answer with rows that the plan has already, because they follow from the definitions alone."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Notice:
    """A notice for the person who runs the script."""

    text: str


DefinitionEffect = PutDefinition | ChangeDefinition | DropDefinitions
HoldEffect = PutHold | MoveHold | NameHold | DropHolds
UpstreamEffect = Reconcile | Release
SubscriptionEffect = BeginSubscription | SetMaxLag | EndSubscription | ListSubscriptions | ListViews
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
    """The effects of one statement, in their order; none if the statement changes nothing."""

    effects: tuple[Effect, ...] = ()

    @property
    def definition_effects(self) -> tuple[DefinitionEffect, ...]:
        """Select the effects that change the definitions."""
        return tuple(e for e in self.effects if isinstance(e, DefinitionEffect))
