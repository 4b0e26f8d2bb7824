"""Spark types of Arrow columns, for data frames that are made from Arrow tables of diffs."""

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
