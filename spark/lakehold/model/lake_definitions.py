"""All definitions of a lake at one time, and the interface that reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from lakehold.definitions import Connection, Definition, Derived, MaterializedView, Source, Subscription, Table, name_of
from lakehold.errors import DefinitionError
from lakehold.nearest import did_you_mean

D = TypeVar("D", Connection, Source, Table, Subscription, MaterializedView)


@dataclass(frozen=True)
class Entry(Generic[D]):
    """A definition with its identity: `object_id` is never reused, `sql` is the statement as written."""

    object_id: str
    definition: D
    sql: str
    created_at_ms: int


AnyEntry = Entry[Connection] | Entry[Source] | Entry[Table] | Entry[Subscription] | Entry[MaterializedView]

DerivedEntry = Entry[Subscription] | Entry[MaterializedView]
"""A subscription or a materialized view."""


@dataclass(frozen=True)
class Definitions:
    """A lake's definitions at one time; tables and views by full name. A value: changes return a new one."""

    connections: Mapping[str, Entry[Connection]] = field(default_factory=dict)
    sources: Mapping[str, Entry[Source]] = field(default_factory=dict)
    tables: Mapping[str, Entry[Table]] = field(default_factory=dict)
    subscriptions: Mapping[str, Entry[Subscription]] = field(default_factory=dict)
    views: Mapping[str, Entry[MaterializedView]] = field(default_factory=dict)

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

    def view(self, full_name: str) -> Entry[MaterializedView]:
        """Return the materialized view called `namespace.name`."""
        return _found(self.views, full_name, "materialized view")

    @property
    def all_tables(self) -> list[str]:
        """Return the full names of all tables that lakehold writes: those of sources, of views, and of subscriptions."""
        return sorted({*self.tables, *(entry.definition.into for entry in self.all_derived.values())})

    def derived(self, name: str) -> DerivedEntry:
        """Return the materialized view of this full name, or else the subscription of this name."""
        return self.views.get(name) or _found(self.subscriptions, name, "subscription", self.views)

    def entry_of(self, definition: Derived) -> DerivedEntry:
        """Return the entry of a view or subscription; one of the other kind may have the same name."""
        if isinstance(definition, MaterializedView):
            return self.view(definition.full_name)
        return self.subscription(definition.name)

    @property
    def all_derived(self) -> Mapping[str, DerivedEntry]:
        """Return the subscriptions and views by their ids."""
        entries: tuple[DerivedEntry, ...] = (*self.subscriptions.values(), *self.views.values())
        return {entry.object_id: entry for entry in entries}

    def own_table(self, full_name: str) -> Entry[Table] | Entry[MaterializedView] | None:
        """Return the table of a source or the view called `namespace.name`; None for a table of another writer."""
        return self.tables.get(full_name) or self.views.get(full_name)

    def readers_of(self, table: str) -> tuple[Derived, ...]:
        """Return the subscriptions and views that read the table `namespace.name`, each after those that read it in turn."""
        subscriptions = (entry.definition for _, entry in sorted(self.subscriptions.items()))
        found: dict[Derived, None] = dict.fromkeys(each for each in subscriptions if table in each.tables)
        for name, entry in sorted(self.views.items()):
            if table in entry.definition.tables:
                found |= dict.fromkeys((*self.readers_of(name), entry.definition))
        return tuple(found)

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return the names of views `names`, each after those among them that it reads."""
        left, found = sorted(dict.fromkeys(names)), list[str]()
        while left:
            # No view reads itself: a view is created after all that it reads.
            ready = [name for name in left if not any(self._reads(name, other) for other in left)]
            found += ready
            left = [name for name in left if name not in ready]
        return found

    def _reads(self, view: str, other: str) -> bool:
        """Return whether a view reads another one, also through views in between."""
        tables = self.view(view).definition.tables
        return other in tables or any(self._reads(name, other) for name in tables if name in self.views)

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
            MaterializedView: {**self.views},
        }
        for entry in entries:
            found[type(entry.definition)][name_of(entry.definition)] = entry
        return Definitions(*found.values())

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
            case MaterializedView(full_name=name):
                return replace(self, views={n: e for n, e in self.views.items() if n != name})


def _found(entries: Mapping[str, Entry[D]], name: str, kind: str, others: Iterable[str] = ()) -> Entry[D]:
    """Return the entry called `name`; the error suggests one like it, also among `others`."""
    if name in entries:
        return entries[name]
    known = ", ".join(f'"{n}"' for n in sorted(entries)) or "none"
    raise DefinitionError(
        f'{kind} "{name}" does not exist',
        code=f"{kind.replace(' ', '-')}-missing",
        detail=f"Known: {known}.",
        hint=did_you_mean(
            name, {*entries, *others}, f"SHOW {kind.upper()}S lists them, CREATE {kind.upper()} creates one."
        ),
    )


class DefinitionReader(ABC):
    """An interface that reads definitions."""

    @abstractmethod
    def definitions(self) -> Definitions:
        """Return all definitions."""
