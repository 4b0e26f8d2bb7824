"""Definitions as rows of `mz_catalog.mz_objects`: one table, so that any change of definitions is one commit."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import TypeAdapter
from pyiceberg.catalog import Catalog

from lakehold.definitions import Connection, Source, Subscription, Table
from lakehold.errors import DefinitionError
from lakehold.model.definitions import AnyEntry, Definitions, DefinitionStore, Entry
from lakehold.state.state_table import Row, StateTable

OBJECTS_TABLE = "mz_catalog.mz_objects"

_CONNECTION = TypeAdapter(Connection)
_SOURCE = TypeAdapter(Source)
_TABLE = TypeAdapter(Table)
_SUBSCRIPTION = TypeAdapter(Subscription)


class PyIcebergDefinitions(DefinitionStore):
    """The definitions of the lake behind `catalog`."""

    def __init__(self, catalog: Catalog) -> None:
        self._objects = StateTable(catalog, OBJECTS_TABLE)

    def definitions(self) -> Definitions:
        """All definitions now."""
        return from_rows(self._objects.rows())

    def change(self, apply: Callable[[Definitions], Definitions]) -> Definitions:
        """Replace the definitions by `apply(current)` in one commit and return them."""
        return from_rows(self._objects.change(lambda rows: to_rows(apply(from_rows(rows)))))


def to_rows(definitions: Definitions) -> tuple[Row, ...]:
    """One row a definition, in order of creation."""
    entries: list[AnyEntry] = [
        *definitions.connections.values(),
        *definitions.sources.values(),
        *definitions.tables.values(),
        *definitions.subscriptions.values(),
    ]
    return tuple(_to_row(entry) for entry in sorted(entries, key=lambda e: (e.created_at_ms, e.object_id)))


def from_rows(rows: tuple[Row, ...]) -> Definitions:
    """The definitions that `rows` keep."""
    definitions = Definitions()
    for row in rows:
        definitions = definitions.with_entry(_from_row(row))
    return definitions


def _to_row(entry: AnyEntry) -> Row:
    definition = entry.definition
    match definition:
        case Connection():
            kind, namespace, text = "connection", None, _CONNECTION.dump_json(definition)
        case Source():
            kind, namespace, text = "source", None, _SOURCE.dump_json(definition)
        case Table():
            kind, namespace, text = "table", definition.namespace, _TABLE.dump_json(definition)
        case Subscription():
            kind, namespace, text = "subscription", None, _SUBSCRIPTION.dump_json(definition)
    return {
        "id": entry.object_id,
        "type": kind,
        "namespace": namespace,
        "name": definition.name,
        "definition": text.decode(),
        "create_sql": entry.sql,
        "created_at_ms": entry.created_at_ms,
    }


def _from_row(row: Row) -> AnyEntry:
    object_id, text, sql, created_at_ms = row["id"], row["definition"], row["create_sql"], row["created_at_ms"]
    match row["type"]:
        case "connection":
            return Entry(object_id, _CONNECTION.validate_json(text), sql, created_at_ms)
        case "source":
            return Entry(object_id, _SOURCE.validate_json(text), sql, created_at_ms)
        case "table":
            return Entry(object_id, _TABLE.validate_json(text), sql, created_at_ms)
        case "subscription":
            return Entry(object_id, _SUBSCRIPTION.validate_json(text), sql, created_at_ms)
        case other:
            raise DefinitionError(
                f'"{row["name"]}" has the type "{other}", which this version does not know',
                detail=f"It stands in {OBJECTS_TABLE}.",
                hint="Use the version of lakehold that created it, or a later one.",
            )
