"""Definitions as rows of `mz_catalog.mz_objects`: one table, so that any change of definitions is one commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from lakehold.definitions import Connection, MaterializedView, Source, Subscription, Table, plain_option_name
from lakehold.errors import DefinitionError
from lakehold.model.lake_definitions import AnyEntry, DefinitionReader, Definitions, Entry
from lakehold.state.rows import Rows
from lakehold.state.store import State


@dataclass(frozen=True)
class ObjectRow:
    """A row of `mz_catalog.mz_objects`; `definition` is JSON whose form depends on `type`."""

    id: str
    type: str
    namespace: str | None
    name: str
    definition: str
    create_sql: str
    created_at_ms: int


OBJECTS = Rows("mz_catalog.mz_objects", ObjectRow)

_TYPES = {
    Connection: "connection",
    Source: "source",
    Table: "table",
    Subscription: "subscription",
    MaterializedView: "materialized-view",
}
_ADAPTERS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(of) for of, name in _TYPES.items()}


class DefinitionStore(DefinitionReader):
    """A store of a lake's definitions."""

    def __init__(self, state: State) -> None:
        self._objects = state.store(OBJECTS)
        self._seen: tuple[tuple[ObjectRow, ...], Definitions] = ((), Definitions())

    def definitions(self) -> Definitions:
        """Return all definitions: the same object until someone changes them."""
        rows, (seen, definitions) = self._objects.values(), self._seen
        if rows is not seen:
            definitions = _from_rows(rows)
            self._seen = rows, definitions
        return definitions

    def change(self, apply: Callable[[Definitions], Definitions]) -> Definitions:
        """Replace the definitions by `apply(current)` in one commit and return them, as `Store.change` does."""
        return _from_rows(self._objects.change(lambda rows: _to_rows(apply(_from_rows(rows)))))


def _to_rows(definitions: Definitions) -> list[ObjectRow]:
    """Convert definitions to rows, in order of creation."""
    entries: list[AnyEntry] = [
        *definitions.connections.values(),
        *definitions.sources.values(),
        *definitions.tables.values(),
        *definitions.subscriptions.values(),
        *definitions.views.values(),
    ]
    return [_to_row(entry) for entry in sorted(entries, key=lambda e: (e.created_at_ms, e.object_id))]


def _from_rows(rows: tuple[ObjectRow, ...]) -> Definitions:
    return Definitions().with_entries(map(_from_row, rows))


def _to_row(entry: AnyEntry) -> ObjectRow:
    definition = entry.definition
    of = _TYPES[type(definition)]
    namespace = definition.namespace if isinstance(definition, Table | MaterializedView) else None
    text = _ADAPTERS[of].dump_json(definition).decode()
    return ObjectRow(entry.object_id, of, namespace, definition.name, text, entry.sql, entry.created_at_ms)


def _from_row(row: ObjectRow) -> AnyEntry:
    if row.type not in _ADAPTERS:
        raise DefinitionError(
            f'"{row.name}" has the type "{row.type}", which this version does not know',
            detail=f"Its definition is in {OBJECTS.table}.",
            hint="Use the version of lakehold that created it, or a later one.",
        )
    definition = _ADAPTERS[row.type].validate_json(row.definition)
    if isinstance(definition, Connection | Source | Table):
        # Earlier versions kept dots in the names of options, and then did not find the options.
        options = {plain_option_name(name): value for name, value in definition.options.items()}
        definition = replace(definition, options=options)
    return Entry(row.id, definition, row.create_sql, row.created_at_ms)
