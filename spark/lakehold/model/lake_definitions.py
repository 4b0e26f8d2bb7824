"""All definitions of a lake at one time, and the interface that reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from lakehold.definitions import Connection, Definition, Source, Subscription, Table
from lakehold.errors import DefinitionError

D = TypeVar("D", Connection, Source, Table, Subscription)


@dataclass(frozen=True)
class Entry(Generic[D]):
    """A definition with its identity: `object_id` is never reused, `sql` is the statement as written."""

    object_id: str
    definition: D
    sql: str
    created_at_ms: int


AnyEntry = Entry[Connection] | Entry[Source] | Entry[Table] | Entry[Subscription]


@dataclass(frozen=True)
class Definitions:
    """A lake's definitions at one time; tables by full name. A value: changes return a new one."""

    connections: Mapping[str, Entry[Connection]] = field(default_factory=dict)
    sources: Mapping[str, Entry[Source]] = field(default_factory=dict)
    tables: Mapping[str, Entry[Table]] = field(default_factory=dict)
    subscriptions: Mapping[str, Entry[Subscription]] = field(default_factory=dict)

    def connection(self, name: str) -> Connection:
        """Return the connection called `name`."""
        return _found(self.connections, name, "connection").definition

    def source(self, name: str) -> Source:
        """Return the source called `name`."""
        return _found(self.sources, name, "source").definition

    def table(self, full_name: str) -> Entry[Table]:
        """Return the table called `namespace.name`."""
        return _found(self.tables, full_name, "table")

    def subscription(self, name: str) -> Entry[Subscription]:
        """Return the subscription called `name`."""
        return _found(self.subscriptions, name, "subscription")

    def subscriptions_to(self, table: str) -> tuple[Subscription, ...]:
        """Return the subscriptions that read the table `namespace.name`, in order of name."""
        found = (entry.definition for _, entry in sorted(self.subscriptions.items()))
        return tuple(subscription for subscription in found if table in subscription.tables)

    def subscription_into(self, table: str) -> Subscription | None:
        """Return the subscription that publishes to the table `namespace.name`."""
        found = (entry.definition for entry in self.subscriptions.values())
        return next((subscription for subscription in found if subscription.into == table), None)

    def tables_of(self, source: str) -> tuple[Entry[Table], ...]:
        """Return the tables fed by `source`, in order of creation."""
        entries = (e for e in self.tables.values() if e.definition.source == source)
        return tuple(sorted(entries, key=lambda e: (e.created_at_ms, e.definition.full_name)))

    @property
    def sources_with_tables(self) -> list[str]:
        """Return the names of the sources that feed a table, in order."""
        return sorted({entry.definition.source for entry in self.tables.values()})

    def users_of_connection(self, name: str) -> tuple[str, ...]:
        """Return the names of the sources that use the connection `name`."""
        sources = (e.definition for e in self.sources.values())
        return tuple(sorted(s.name for s in sources if name in s.connections))

    def with_entry(self, entry: AnyEntry) -> Definitions:
        """Return these definitions and `entry`, which replaces one of its kind and name."""
        return self.with_entries([entry])

    def with_entries(self, entries: Iterable[AnyEntry]) -> Definitions:
        """Return these definitions and `entries`, each of which replaces one of its kind and name."""
        found: dict[type[Definition], dict[str, Any]] = {
            Connection: {**self.connections},
            Source: {**self.sources},
            Table: {**self.tables},
            Subscription: {**self.subscriptions},
        }
        for entry in entries:
            definition = entry.definition
            name = definition.full_name if isinstance(definition, Table) else definition.name
            found[type(definition)][name] = entry
        return Definitions(found[Connection], found[Source], found[Table], found[Subscription])

    def without(self, definition: Definition) -> Definitions:
        """Return these definitions without one of them."""
        match definition:
            case Connection(name=name):
                return replace(self, connections={n: e for n, e in self.connections.items() if n != name})
            case Source(name=name):
                return replace(self, sources={n: e for n, e in self.sources.items() if n != name})
            case Table(full_name=name):
                return replace(self, tables={n: e for n, e in self.tables.items() if n != name})
            case Subscription(name=name):
                return replace(self, subscriptions={n: e for n, e in self.subscriptions.items() if n != name})


def _found(entries: Mapping[str, Entry[D]], name: str, kind: str) -> Entry[D]:
    if name in entries:
        return entries[name]
    known = ", ".join(f'"{n}"' for n in sorted(entries)) or "none"
    close = get_close_matches(name, entries, n=1)
    raise DefinitionError(
        f'{kind} "{name}" does not exist',
        code=f"{kind}-missing",
        detail=f"Known: {known}.",
        hint=f'Did you mean "{close[0]}"?'
        if close
        else f"SHOW {kind.upper()}S lists them, CREATE {kind.upper()} creates one.",
    )


class DefinitionReader(ABC):
    """An interface that reads definitions."""

    @abstractmethod
    def definitions(self) -> Definitions:
        """Return all definitions."""
