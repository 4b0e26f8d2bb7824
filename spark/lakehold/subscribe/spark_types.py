"""Spark types of Arrow columns, and Arrow types of Spark's, for data frames that are made from Arrow tables or become them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as spark

from lakehold.errors import DefinitionError

_FLAT: dict[pa.DataType, spark.DataType] = {
    pa.null(): spark.NullType(),
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
    pa.time64("us"): spark.TimeType(6),
    pa.duration("us"): spark.DayTimeIntervalType(),
}


def spark_schema(columns: pa.Schema) -> spark.StructType:
    """Return Spark's schema for `columns`."""
    return spark.StructType([spark.StructField(field.name, spark_type(field.type)) for field in columns])


def spark_type(of: pa.DataType) -> spark.DataType:
    """Return Spark's type for an Arrow type.

    Raises:
        DefinitionError: Spark has no such type.
    """
    if pa.types.is_decimal(of):
        return spark.DecimalType(of.precision, of.scale)
    if pa.types.is_timestamp(of):
        return spark.TimestampNTZType() if of.tz is None else spark.TimestampType()
    if pa.types.is_map(of):
        return spark.MapType(spark_type(of.key_type), spark_type(of.item_type))
    if pa.types.is_list(of):
        return spark.ArrayType(spark_type(of.value_type))
    if pa.types.is_struct(of):
        return spark_schema(pa.schema(list(of)))
    if of not in _FLAT:
        raise DefinitionError(
            f'Spark has no type for "{of}"', code="unsupported-type", hint="Leave the column out: SUBSCRIBE (SELECT …)."
        )
    return _FLAT[of]


_FLAT_ARROW = {kind: of for of, kind in _FLAT.items()}


def arrow_schema_of(columns: spark.StructType) -> pa.Schema:
    """Return the Arrow schema for `columns`, whose types Arrow has."""
    return pa.schema([pa.field(field.name, _arrow_type(field.dataType)) for field in columns.fields])


def _arrow_type(of: spark.DataType) -> pa.DataType:  # noqa: PLR0911 - one for each type
    match of:
        case spark.DecimalType():
            return pa.decimal128(of.precision, of.scale)
        case spark.TimestampType():
            return pa.timestamp("us", "UTC")
        case spark.TimestampNTZType():
            return pa.timestamp("us")
        case spark.MapType():
            return pa.map_(_arrow_type(of.keyType), _arrow_type(of.valueType))
        case spark.ArrayType():
            return pa.list_(pa.field("element", _arrow_type(of.elementType)))
        case spark.StructType():
            return pa.struct(list(arrow_schema_of(of)))
        case spark.StringType():  # with a length or a collation, too
            return pa.string()
        case spark.TimeType():
            return pa.time64("us")
        case spark.DayTimeIntervalType():
            return pa.duration("us")
        case _:
            return _FLAT_ARROW[of]
