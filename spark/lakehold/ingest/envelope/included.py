"""Adds the columns of the clause INCLUDE: a message's key, partition, offset, timestamp and headers, after the columns of rows.

`CREATE TABLE … INCLUDE KEY, OFFSET AS kafka_offset` requests them. Here they are SQL over decoded messages
(`lakehold.ingest.decode.decoded.Decoded`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from lakehold.definitions import Included, Metadata, Table
from lakehold.errors import TableStopped
from lakehold.spark_sql import quoted, struct_of
from lakehold.tables.column_names import folded
from lakehold.tables.column_types import ColumnType
from lakehold.times import LAST_MS

_HEADER = StructType(NestedField(2, "key", StringType()), NestedField(3, "value", BinaryType()))
_COLUMNS = {
    Metadata.PARTITION: ("partition", IntegerType()),
    Metadata.OFFSET: ("offset", LongType()),
    Metadata.TIMESTAMP: (
        # Kafka has -1 for none.
        f"CASE WHEN timestamp_ms BETWEEN 0 AND {LAST_MS} THEN timestamp_millis(timestamp_ms) END",
        TimestamptzType(),
    ),
    Metadata.HEADERS: ("coalesce(headers, array())", ListType(1, _HEADER, element_required=False)),
}


@dataclass(frozen=True)
class IncludedColumn:
    """A column that INCLUDE adds.

    Args:
        by: The item of the clause.
        column: The column.
        value: SQL over decoded messages.
    """

    by: Included
    column: ColumnType
    value: str


def included_columns(
    table: Table, in_key: Sequence[ColumnType], in_row: Collection[str], own_key: Collection[str]
) -> tuple[IncludedColumn, ...]:
    """Return the columns that INCLUDE adds to a table.

    Args:
        table: The definition.
        in_key: The columns of message keys; without them, a key adds no column.
        in_row: Names of the columns of rows.
        own_key: Names of the columns of the table's key.

    Raises:
        TableStopped: A column has the name of another one.
    """
    found = tuple(_included(table, in_key, own_key))
    own, listed = {*map(folded, own_key)}, {folded(c.name) for c in table.columns}
    names = {*own, *(listed or map(folded, in_row))}
    for each in found:
        name = folded(each.column.name)
        # A column list gives the columns of a key their types and positions.
        is_key_column = name in listed and name not in own and each.by.what is Metadata.KEY
        if name in names and not is_key_column:
            raise _name_clash(table, each)
        names.add(name)
    return found


def _included(table: Table, in_key: Sequence[ColumnType], own_key: Collection[str]) -> Iterator[IncludedColumn]:
    for by in table.include:
        if by.what is not Metadata.KEY:
            value, kind = _COLUMNS[by.what]
            yield IncludedColumn(by, ColumnType(by.name, kind), value)
        elif by.alias is None:
            for column in in_key:
                if column.name not in own_key:
                    yield IncludedColumn(by, column, f"key.{quoted(column.name)}")
        elif len(in_key) == 1:
            yield IncludedColumn(by, ColumnType(by.alias, in_key[0].type), f"key.{quoted(in_key[0].name)}")
        elif in_key:
            fields = struct_of({c.name: f"key.{quoted(c.name)}" for c in in_key})
            kind = StructType(*(NestedField(n, c.name, c.type) for n, c in enumerate(in_key, 1)))
            yield IncludedColumn(by, ColumnType(by.alias, kind), f"CASE WHEN key IS NOT NULL THEN {fields} END")


def _name_clash(table: Table, included: IncludedColumn) -> TableStopped:
    name, what = included.column.name, included.by.what.value.upper()
    return TableStopped(
        f'table "{table.full_name}" would have two columns "{name}"',
        table=table.full_name,
        code="include-name",
        detail=f"INCLUDE {what} adds one, and there is another one of this name. Nothing of this batch was written to the table.",
        hint=f"Drop the table, and create it again with another name: INCLUDE {what} AS name.",
    )
