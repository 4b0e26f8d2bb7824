"""Types: from schemas to Iceberg's, and between Iceberg's and Spark's.

Iceberg's types (of `pyiceberg.types`) are the vocabulary. Ids of nested fields are counted from 1 within each column
and mean nothing: compare with `unify.same`, and let the catalog give fresh ids.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from pyspark.sql import types as spark

from lakehold.ingest.decode.connect_schema import ConnectSchema, SchemaType
from lakehold.ingest.decode.logical import logical_type
from lakehold.spark_sql import struct_type

_PLAIN: dict[SchemaType, PrimitiveType] = {
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

_FROM_SPARK: dict[type[spark.DataType], IcebergType] = {
    spark.BooleanType: BooleanType(),
    spark.ByteType: IntegerType(),
    spark.ShortType: IntegerType(),
    spark.IntegerType: IntegerType(),
    spark.LongType: LongType(),
    spark.FloatType: FloatType(),
    spark.DoubleType: DoubleType(),
    spark.DateType: DateType(),
    spark.TimestampType: TimestamptzType(),
    spark.TimestampNTZType: TimestampType(),
    spark.StringType: StringType(),
    spark.VarcharType: StringType(),
    spark.CharType: StringType(),
    spark.BinaryType: BinaryType(),
}


@dataclass(frozen=True)
class ColumnType:
    """A decoded column. `required`: upstream says it is never null."""

    name: str
    type: IcebergType
    required: bool = False

    @property
    def spark_type(self) -> str:
        """The type as Spark SQL writes it."""
        return spark_text(self.type)


def column_types(schema: ConnectSchema) -> tuple[ColumnType, ...]:
    """The columns of a structure."""
    return tuple(ColumnType(f.name, iceberg_type(f.schema), not f.schema.optional) for f in schema.fields)


def iceberg_type(schema: ConnectSchema) -> IcebergType:
    """The type of the column that a schema becomes."""
    return _iceberg_type(schema, count(1))


def _iceberg_type(schema: ConnectSchema, ids: Iterator[int]) -> IcebergType:
    if (rule := logical_type(schema)) is not None:
        return rule.type
    if schema.type is SchemaType.ARRAY and schema.items is not None:
        return ListType(next(ids), _iceberg_type(schema.items, ids), False)
    if schema.type is SchemaType.MAP and schema.keys is not None and schema.values is not None:
        if schema.keys.type is SchemaType.STRING:
            return MapType(next(ids), StringType(), next(ids), _iceberg_type(schema.values, ids), False)
        return ListType(next(ids), _struct((("key", schema.keys), ("value", schema.values)), ids), False)
    if schema.type is SchemaType.STRUCT:
        return _struct(((f.name, f.schema) for f in schema.fields), ids)
    return _PLAIN[schema.type]


def _struct(
    fields: Iterator[tuple[str, ConnectSchema]] | tuple[tuple[str, ConnectSchema], ...], ids: Iterator[int]
) -> StructType:
    return StructType(*(NestedField(next(ids), n, _iceberg_type(s, ids), required=False) for n, s in fields))


def spark_text(of: IcebergType) -> str:
    """The type as Spark SQL writes it (`struct<a: bigint>`); `uuid` is `string`, as Spark reads it."""
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


def from_spark(of: spark.DataType) -> IcebergType:
    """The Iceberg type of a Spark type.

    Raises:
        TypeError: Iceberg has none.
    """
    return _from_spark(of, count(1))


def _from_spark(of: spark.DataType, ids: Iterator[int]) -> IcebergType:
    match of:
        case spark.DecimalType():
            return DecimalType(of.precision, of.scale)
        case spark.ArrayType():
            return ListType(next(ids), _from_spark(of.elementType, ids), False)
        case spark.MapType():
            return MapType(next(ids), _from_spark(of.keyType, ids), next(ids), _from_spark(of.valueType, ids), False)
        case spark.StructType():
            return StructType(
                *(NestedField(next(ids), f.name, _from_spark(f.dataType, ids), required=False) for f in of.fields)
            )
        case _ if type(of) in _FROM_SPARK:
            return _FROM_SPARK[type(of)]
        case _:
            raise TypeError(f"Iceberg has no type for {of.simpleString()}")
