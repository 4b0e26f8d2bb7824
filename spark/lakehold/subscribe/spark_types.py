"""Arrow columns as Spark's: the types that Spark gives them, and their values as PySpark's rows have them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
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

_Converter = Callable[[Any], Any]


def spark_schema(columns: pa.Schema) -> spark.StructType:
    """Spark's schema for `columns`."""
    return spark.StructType([spark.StructField(field.name, _spark_type(field.type)) for field in columns])


def _spark_type(of: pa.DataType) -> spark.DataType:
    if pa.types.is_decimal(of):
        return spark.DecimalType(of.precision, of.scale)
    if pa.types.is_timestamp(of):
        return spark.TimestampNTZType() if of.tz is None else spark.TimestampType()
    if pa.types.is_map(of):
        return spark.MapType(_spark_type(of.key_type), _spark_type(of.item_type))
    if pa.types.is_list(of):
        return spark.ArrayType(_spark_type(of.value_type))
    if pa.types.is_struct(of):
        return spark_schema(pa.schema(list(of)))
    if of not in _FLAT:
        raise DefinitionError(
            f'Spark has no type for "{of}"', code="unsupported-type", hint="Leave the column out: SUBSCRIBE (SELECT …)."
        )
    return _FLAT[of]


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows as PySpark gives them: `Row` for structs, `dict` for maps, times in the time zone of this process."""
    columns = []
    for column in table.columns:
        convert = _converter(column.type)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False)  # noqa: PLW2901 - the same column
        values = column.to_pylist()
        columns.append(values if convert is None else [None if value is None else convert(value) for value in values])
    return list(zip(*columns, strict=True))


def _converter(of: pa.DataType) -> _Converter | None:
    """What makes Arrow's value PySpark's; None: they are the same."""
    if pa.types.is_timestamp(of):
        return None if of.tz is None else _local
    if pa.types.is_map(of):
        key, item = (_converter(part) or _same for part in (of.key_type, of.item_type))
        return lambda entries: {key(k): None if v is None else item(v) for k, v in entries}
    if pa.types.is_list(of):
        convert = _converter(of.value_type)
        return None if convert is None else lambda values: [None if v is None else convert(v) for v in values]
    if pa.types.is_struct(of):
        row = Row(*(field.name for field in of))
        parts = [(field.name, _converter(field.type) or _same) for field in of]
        return lambda found: row(*(None if found[n] is None else convert(found[n]) for n, convert in parts))
    return None


def _same(value: Any) -> Any:
    return value


def _local(at: datetime) -> datetime:
    return at.astimezone().replace(tzinfo=None)
