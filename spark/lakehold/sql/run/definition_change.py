"""Statements that change the definitions in one commit; lakehold plans them again if another writer commits first.

Definitions are the connections, sources, tables of sources, subscriptions and views that a lake has: rows of one system table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import assert_never
from uuid import uuid4

from lakehold.definitions import Connection, Definition, MaterializedView, Source, Subscription, Table, name_of
from lakehold.errors import LakeholdError
from lakehold.model.lake_definitions import AnyEntry, Definitions, Entry
from lakehold.sql.plan.holds import needs_holds
from lakehold.sql.plan.statement_effects import ChangeDefinition, DropDefinitions, Plan, PutDefinition
from lakehold.sql.plan.statement_plan import plan
from lakehold.sql.statements import ParsedStatement
from lakehold.state.holds import Holds
from lakehold.times import now_ms


class DefinitionChange:
    """The change of the definitions by some statements, in their order; a new object has the same id in each try.

    Args:
        statements: One statement, or those of a transaction.
        holds: Reads the holds, for the statements that need them.
        check: Checks the privileges for each plan of each try, so that no plan is committed unchecked; it raises to refuse.
    """

    def __init__(
        self,
        statements: Sequence[ParsedStatement],
        holds: Callable[[], Holds],
        check: Callable[[Plan], None] = lambda _: None,
    ) -> None:
        self._statements = statements
        self._holds = holds
        self._check = check
        self._ids: defaultdict[tuple[type[Definition], str], str] = defaultdict(lambda: uuid4().hex)
        self.plans: list[Plan] = []
        """The plan of each statement, as of the last try."""

    def apply(self, current: Definitions) -> Definitions:
        """Apply the statements to the definitions `current`, and return the result."""
        self.plans = []
        for parsed in self._statements:
            with locating_errors(parsed, alone=len(self._statements) == 1):
                holds = self._holds() if needs_holds(parsed.statement) else ()
                planned = plan(parsed, current, holds)
                self._check(planned)
            current = apply_plan(current, planned, self._id)
            self.plans.append(planned)
        return current

    @property
    def declared(self) -> Mapping[str, str]:
        """Return the object ids of the new tables and views, by full name."""
        puts = (effect for planned in self.plans for effect in planned.definition_effects)
        definitions = (effect.definition for effect in puts if isinstance(effect, PutDefinition))
        return {name_of(new): self._id(new) for new in definitions if isinstance(new, Table | MaterializedView)}

    def _id(self, definition: Definition) -> str:
        return self._ids[type(definition), name_of(definition)]


def apply_plan(
    definitions: Definitions, plan: Plan, object_id: Callable[[Definition], str] = lambda _: uuid4().hex
) -> Definitions:
    """Apply the effects of `plan` on the definitions, and return the result; `object_id` gives the ids of new objects."""
    for effect in plan.definition_effects:
        match effect:
            case PutDefinition(definition, sql):
                definitions = definitions.with_entry(_entry(object_id(definition), definition, sql))
            case ChangeDefinition(definition):
                definitions = definitions.with_entry(_changed(definition, definitions))
            case DropDefinitions(dropped):
                for definition in dropped:
                    definitions = definitions.without(definition)
            case other:
                assert_never(other)
    return definitions


def _entry(object_id: str, definition: Definition, sql: str) -> AnyEntry:
    created_at_ms = now_ms()
    match definition:
        case Connection():
            return Entry(object_id, definition, sql, created_at_ms)
        case Source():
            return Entry(object_id, definition, sql, created_at_ms)
        case Table():
            return Entry(object_id, definition, sql, created_at_ms)
        case Subscription():
            return Entry(object_id, definition, sql, created_at_ms)
        case MaterializedView():
            return Entry(object_id, definition, sql, created_at_ms)


def _changed(definition: Definition, definitions: Definitions) -> AnyEntry:
    match definition:
        case Connection(name=name):
            return replace(definitions.connections[name], definition=definition)
        case Source(name=name):
            return replace(definitions.sources[name], definition=definition)
        case Table(full_name=name):
            return replace(definitions.table(name), definition=definition)
        case Subscription(name=name):
            return replace(definitions.subscription(name), definition=definition)
        case MaterializedView(full_name=name):
            return replace(definitions.view(name), definition=definition)


@contextmanager
def locating_errors(parsed: ParsedStatement, *, alone: bool) -> Iterator[None]:
    """Add the place of the statement to errors of the block, unless the script has only one statement."""
    try:
        yield
    except LakeholdError as error:
        if error.place is None and not alone:
            error.place = parsed.written.place
        raise
