"""Types: from the schemas of messages (Kafka Connect's) to Iceberg's, and how Spark SQL writes them.

Iceberg's types (of `pyiceberg.types`) are the vocabulary. Ids of nested fields are counted from 1 within each column
and mean nothing: compare with `ingest.decode.unify.same`, and let the catalog assign fresh ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
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
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from lakehold.ingest.decode.connect_schema import ConnectSchema, SchemaType
from lakehold.ingest.decode.logical import logical_type
from lakehold.spark_sql import literal, struct_type

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

_SPARK_TEXT: dict[type[IcebergType], str] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "bigint",
    FloatType: "float",
    DoubleType: "double",
    DateType: "date",
    TimestampType: "timestamp_ntz",
    TimestamptzType: "timestamp",
    StringType: "string",
    UUIDType: "string",
    BinaryType: "binary",
    FixedType: "binary",
}


@dataclass(frozen=True)
class ColumnType:
    """A decoded column.

    Args:
        name: Its name.
        type: Its type.
        required: Whether its upstream column is never null.
        initial: Its value in rows and messages that lack the column, in Python's form of the type.
    """

    name: str
    type: IcebergType
    required: bool = False
    initial: object = None

    @property
    def spark_type(self) -> str:
        """Write the type in Spark SQL."""
        return spark_text(self.type)

    @property
    def initial_sql(self) -> str:
        """Write the initial value in Spark SQL."""
        return f"CAST({literal(self.initial)} AS {self.spark_type})"


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


def spark_text(of: IcebergType) -> str:
    """Write a type in Spark SQL (`struct<a: bigint>`); `uuid` is `string`, as Spark reads it."""
    match of:
        case DecimalType():
            return f"decimal({of.precision},{of.scale})"
        case ListType():
            return f"array<{spark_text(of.element_type)}>"
        case MapType():
            return f"map<{spark_text(of.key_type)},{spark_text(of.value_type)}>"
        case StructType():
            return struct_type((f.name, spark_text(f.field_type)) for f in of.fields)
        case _:
            return _SPARK_TEXT[type(of)]
