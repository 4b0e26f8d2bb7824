"""The bounds of rows are the same whether this process computes them or Spark does."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from lakehold.arrow_frames import frame_of
from lakehold.subscribe.spark_types import spark_schema
from lakehold.tables import equal_rows
from lakehold.tables.column_types import ColumnType
from lakehold.tables.spark_types import from_spark
from lakehold.tables.unify import cast

_SHORT, _INT, _LONG = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))
_TIMES = st.integers(-(2**58), 2**58)

_COLUMNS: tuple[tuple[pa.DataType, IcebergType, st.SearchStrategy[Any]], ...] = (
    (pa.int32(), IntegerType(), _INT),
    (pa.int16(), IntegerType(), _SHORT),
    (pa.int64(), LongType(), _LONG),
    (pa.int32(), LongType(), _INT),
    (pa.string(), StringType(), st.text(max_size=5)),
    (pa.string(), UUIDType(), st.uuids().map(str)),
    (pa.date32(), DateType(), st.integers(-(2**22), 2**22)),
    (pa.timestamp("us"), TimestampType(), _TIMES),
    (pa.timestamp("us", "UTC"), TimestamptzType(), _TIMES),
    (pa.timestamp("us", "Etc/GMT+5"), TimestamptzType(), _TIMES),
    (pa.decimal128(9, 2), DecimalType(12, 2), st.decimals(-(10**7) + 1, 10**7 - 1, places=2)),
    (pa.decimal128(9, 1), DecimalType(38, 4), st.decimals(-(10**8) + 1, 10**8 - 1, places=1)),
    (pa.int32(), DecimalType(12, 2), _INT),
    (pa.null(), LongType(), st.none()),
    (pa.null(), DoubleType(), st.none()),
    (pa.float64(), DoubleType(), st.floats()),
    (pa.bool_(), BooleanType(), st.booleans()),
)


@pytest.mark.spark
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_this_process_and_spark_find_the_same_bounds(spark: SparkSession, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    some = [data.draw(st.lists(st.none() | values, min_size=count, max_size=count)) for _, _, values in _COLUMNS]
    columns = [ColumnType(f"c {place}", of) for place, (_, of, _) in enumerate(_COLUMNS)]
    arrays = [pa.array(values, kind) for values, (kind, _, _) in zip(some, _COLUMNS, strict=True)]
    rows = pa.table(arrays, names=[column.name for column in columns])
    cut = data.draw(st.integers(0, count))
    here = equal_rows.bounds_in(pa.concat_tables([rows.slice(0, cut), rows.slice(cut)]), columns)
    assert here == _by_spark(rows, columns, spark)
    assert [*equal_rows.ranges(columns, here)]


def _by_spark(rows: pa.Table, columns: list[ColumnType], spark: SparkSession) -> dict[str, Any]:
    schema = spark_schema(rows.schema)
    typed = []
    for column in columns:
        kind, name = schema[column.name].dataType, f"`{column.name}`"
        is_null = isinstance(kind, spark_types.NullType)
        value = f"CAST(NULL AS {column.spark_type})" if is_null else cast(name, from_spark(kind), column.type)
        typed.append(f"{value} AS {name}")
    frame = frame_of(rows, spark, schema).selectExpr(*typed)
    ((found),) = frame.selectExpr("count(*) AS n", *equal_rows.bounds_of(columns)).toArrow().to_pylist()
    del found["n"]
    return dict(found)


def test_rows_without_values_have_no_bounds_and_texts_are_ordered_by_their_bytes() -> None:
    columns = [ColumnType("a", LongType()), ColumnType("b", StringType()), ColumnType("c", DecimalType(4, 1))]
    rows = pa.table(
        {
            "a": pa.array([None, None], pa.int32()),
            "b": pa.array(["\uffff", "\U00010000"]),
            "c": pa.array([Decimal("1.5"), None]),
        }
    )
    assert [*equal_rows.ranges(columns, equal_rows.bounds_in(rows, columns), "t.")] == [
        "t.`a` IS NULL",
        "t.`b` BETWEEN '\uffff' AND '\U00010000'",
        "(t.`c` BETWEEN 1.5BD AND 1.5BD OR t.`c` IS NULL)",
    ]
