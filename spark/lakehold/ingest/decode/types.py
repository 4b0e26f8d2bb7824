"""Types: from the schemas of messages (Kafka Connect's) to Iceberg's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
)

from lakehold.ingest.decode.connect_schema import ConnectSchema, SchemaType
from lakehold.ingest.decode.logical import logical_type
from lakehold.tables.column_types import ColumnType

PLAIN: dict[SchemaType, PrimitiveType] = {
    SchemaType.INT8: IntegerType(),
    SchemaType.INT16: IntegerType(),
    SchemaType.INT32: IntegerType(),
    SchemaType.INT64: LongType(),
    SchemaType.FLOAT32: FloatType(),
    SchemaType.FLOAT64: DoubleType(),
    SchemaType.BOOLEAN: BooleanType(),
    SchemaType.STRING: StringType(),
    SchemaType.BYTES: BinaryType(),
}
"""The types of schemas without a logical type and without schemas inside them."""


def column_types(schema: ConnectSchema) -> tuple[ColumnType, ...]:
    """Return the columns of a structure."""
    return tuple(ColumnType(f.name, iceberg_type(f.schema), not f.schema.optional) for f in schema.fields)


def iceberg_type(schema: ConnectSchema, ids: Iterator[int] | None = None) -> IcebergType:
    """Return the Iceberg type of a column whose messages have a schema; fields inside get the next of `ids`.

    A logical type has no fields inside, so it needs no id. A map whose keys are not text becomes a list of its entries.
    """
    ids = ids or count(1)
    if (rule := logical_type(schema)) is not None:
        return rule.type
    if schema.type is SchemaType.ARRAY and schema.items is not None:
        return ListType(next(ids), iceberg_type(schema.items, ids), False)
    if schema.type is SchemaType.MAP and schema.keys is not None and schema.values is not None:
        if schema.keys.type is SchemaType.STRING:
            return MapType(next(ids), StringType(), next(ids), iceberg_type(schema.values, ids), False)
        return ListType(next(ids), _struct((("key", schema.keys), ("value", schema.values)), ids), False)
    if schema.type is SchemaType.STRUCT:
        return _struct(((f.name, f.schema) for f in schema.fields), ids)
    return PLAIN[schema.type]


def _struct(fields: Iterable[tuple[str, ConnectSchema]], ids: Iterator[int]) -> StructType:
    return StructType(*(NestedField(next(ids), n, iceberg_type(s, ids), required=False) for n, s in fields))
