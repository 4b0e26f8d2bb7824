"""Derives the lake's columns of captured tables from the database's columns. Pure.

`postgres_types.py` and `mysql_types.py` list what Debezium sends for each type, and what such values lose on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lakehold.definitions import ConnectionType
from lakehold.ingest.decode.types import iceberg_type
from lakehold.tables.column_types import ColumnType
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.types import mysql_types, postgres_types
from lakehold.upstream.types.sent_types import SentType

Columns = Mapping[str, Sequence[FoundColumn]]
"""Columns by the name of their table upstream."""


def sent_type(column: FoundColumn, database: ConnectionType) -> SentType:
    """Return the type in which Debezium sends a column of PostgreSQL, MySQL or MariaDB."""
    return postgres_types.sent(column) if database is ConnectionType.POSTGRES else mysql_types.sent(column)


def columns_of(found: Sequence[FoundColumn], database: ConnectionType) -> tuple[ColumnType, ...]:
    """Return the lake's columns for a table that has these columns upstream, in order and without those that are not sent."""
    sent = [(column, sent_type(column, database).schema) for column in found]
    return tuple(
        ColumnType(column.name, iceberg_type(schema), not column.is_nullable)
        for column, schema in sent
        if schema is not None
    )


def unsent_columns(found: Sequence[FoundColumn], database: ConnectionType) -> Iterator[tuple[FoundColumn, str]]:
    """Yield each column that Debezium cannot send, with the reason."""
    for column in found:
        sent = sent_type(column, database)
        if sent.schema is None:
            yield column, sent.lost


def left_out_hints(tables: Iterable[str], found: Columns, database: ConnectionType) -> Iterator[str]:
    """Yield a sentence for each column of some tables that Debezium cannot send."""
    for table in tables:
        for column, why in unsent_columns(found.get(table, ()), database):
            yield f"column {table}.{column.name} ({column.text}) is left out: {why}"


def lost_hints(tables: Iterable[str], found: Columns, database: ConnectionType) -> Iterator[str]:
    """Yield a sentence for each kind of values that Debezium does not send unchanged, with the columns that may have some."""
    for table in tables:
        columns: dict[str, list[str]] = {}
        for column in found.get(table, ()):
            sent = sent_type(column, database)
            # By a key that loses values lakehold would confuse rows.
            is_reported = sent.is_reported or (column.is_key and bool(sent.lost))
            if sent.schema is not None and is_reported:
                columns.setdefault(sent.lost, []).append(f"{table}.{column.name} ({column.text})")
        for lost, names in columns.items():
            yield f"column{'' if len(names) == 1 else 's'} {', '.join(names)}: {lost}"
