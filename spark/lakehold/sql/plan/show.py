"""The answers of SHOW and SHOW CREATE, which follow from the definitions alone."""

from __future__ import annotations

from typing import assert_never

from lakehold.definitions import Connection, Definition, ObjectKind, Source, Table, name_of
from lakehold.model.lake_definitions import Definitions
from lakehold.sql.plan.statement_effects import Rows
from lakehold.sql.render import create_statement, options_text

_CONNECTION_COLUMNS = ("name", "type", "options")
_SOURCE_COLUMNS = ("name", "connection", "path", "topics", "format", "registry", "transaction_topic", "captures")
_TABLE_COLUMNS = ("namespace", "name", "source", "topic", "envelope", "key")


def show(kind: ObjectKind, definitions: Definitions) -> Rows:
    """List the objects of `kind` by name, one row each; only those tables that lakehold feeds."""
    match kind:
        case ObjectKind.CONNECTION:
            entries = sorted(definitions.connections.items())
            return Rows(_CONNECTION_COLUMNS, tuple(_connection_row(e.definition) for _, e in entries))
        case ObjectKind.SOURCE:
            sources = sorted(definitions.sources.items())
            return Rows(_SOURCE_COLUMNS, tuple(_source_row(e.definition) for _, e in sources))
        case ObjectKind.TABLE:
            tables = sorted(definitions.tables.items())
            return Rows(_TABLE_COLUMNS, tuple(_table_row(e.definition) for _, e in tables))
        case ObjectKind.SUBSCRIPTION | ObjectKind.MATERIALIZED_VIEW:
            raise AssertionError("the progress of subscriptions and views is not in the definitions")
        case other:
            assert_never(other)


def show_create(definition: Definition) -> Rows:
    """Show the full name of an object and the statement that creates it, in one row."""
    return Rows(("name", "create_statement"), ((name_of(definition), create_statement(definition)),))


def _connection_row(connection: Connection) -> tuple[object, ...]:
    return connection.name, connection.type.value, options_text(connection.options)


def _source_row(source: Source) -> tuple[object, ...]:
    return (
        source.name,
        source.connection,
        source.path,
        list(source.topics),
        source.format.type.value,
        source.format.registry,
        source.transaction_topic,
        source.capture.connection if source.capture is not None else None,
    )


def _table_row(table: Table) -> tuple[object, ...]:
    return table.namespace, table.name, table.source, table.topic, table.envelope.value, list(table.key)
