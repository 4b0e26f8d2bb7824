"""Types: from Spark's to Iceberg's. Apart from the other types, so that commands without Spark do not load it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import types as spark

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


def from_spark(of: spark.DataType, ids: Iterator[int] | None = None) -> IcebergType:
    """Return the Iceberg type of a Spark type; its fields get the next of `ids`.

    Raises:
        TypeError: Iceberg has no such type.
    """
    ids = ids or count(1)
    match of:
        case spark.DecimalType():
            return DecimalType(of.precision, of.scale)
        case spark.ArrayType():
            return ListType(next(ids), from_spark(of.elementType, ids), False)
        case spark.MapType():
            return MapType(next(ids), from_spark(of.keyType, ids), next(ids), from_spark(of.valueType, ids), False)
        case spark.StructType():
            fields = ((f.name, f.dataType) for f in of.fields)
            return StructType(*(NestedField(next(ids), n, from_spark(t, ids), required=False) for n, t in fields))
        case _ if type(of) in _FROM_SPARK:
            return _FROM_SPARK[type(of)]
        case _:
            raise TypeError(f"Iceberg has no type for {of.simpleString()}")
