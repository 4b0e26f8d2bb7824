"""Converts a snapshot's columns to the table's current schema in Spark SQL, matched by field id, so that a rename changes no row.

Spark returns `VERSION AS OF` with the schema that the snapshot was written with, but diffs over time need a single schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from lakehold.spark_sql import literal, quoted, struct_of
from lakehold.tables.column_types import spark_text

_Reference = Callable[[str], str]


def projection(written: Schema, wanted: Schema) -> list[str]:
    """Build an expression for each column of `wanted`, over a relation with the columns of `written`."""
    return _fields(written.fields, wanted.fields, quoted)


def _fields(written: Iterable[NestedField], wanted: Iterable[NestedField], reference: _Reference) -> list[str]:
    by_id = {field.field_id: field for field in written}
    found = []
    for field in wanted:
        source = by_id.get(field.field_id)
        if source is None:
            found.append(_absent(field))
        else:
            found.append(_value(reference(source.name), source.field_type, field.field_type))
    return found


def _absent(field: NestedField) -> str:
    return f"CAST({literal(field.initial_default)} AS {spark_text(field.field_type)})"


def _value(sql: str, written: IcebergType, wanted: IcebergType) -> str:
    if written == wanted:
        return sql
    match written, wanted:
        case StructType(), StructType():
            values = _fields(written.fields, wanted.fields, lambda name: f"{sql}.{quoted(name)}")
            named = dict(zip((f.name for f in wanted.fields), values, strict=True))
            return f"CASE WHEN {sql} IS NOT NULL THEN {struct_of(named)} END"
        case ListType(), ListType():
            return f"transform({sql}, e -> {_value('e', written.element_type, wanted.element_type)})"
        case MapType(), MapType():
            key = _value("e.key", written.key_type, wanted.key_type)
            value = _value("e.value", written.value_type, wanted.value_type)
            return f"map_from_entries(transform(map_entries({sql}), e -> struct({key} AS key, {value} AS value)))"
        case _:
            return f"CAST({sql} AS {spark_text(wanted)})"
