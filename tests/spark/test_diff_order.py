"""Diffs are sorted as Spark's ORDER BY sorts their rows."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    ListType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyspark.sql import SparkSession

from lakehold.subscribe.on_spark import LargeDiffs, dated, streamed
from lakehold.subscribe.output_shape import Output
from lakehold.subscribe.project import arrow_type
from lakehold.subscribe.row_order import order_keys, sorted_positions
from lakehold.subscribe.statement import OrderedWithin, OrderItem, OutputShape, Raw, UpsertEnvelope
from tests.iceberg_values import FLAT_VALUES, struct_of

pytestmark = pytest.mark.spark

_WITHOUT_SPARK_TYPE = (TimeType, TimestampNanoType, TimestamptzNanoType, UnknownType)


def array(of: IcebergType) -> ListType:
    return ListType(1, of, False)


NESTED = [
    struct_of(DoubleType(), StringType()),
    struct_of(array(StringType()), struct_of(DateType()), DecimalType(5, 2)),
    array(DoubleType()),
    array(StringType()),
    array(array(DoubleType())),
    array(struct_of(DoubleType(), array(UUIDType()))),
]


def value(of: IcebergType, choices: random.Random) -> Any:
    if choices.random() < 0.2:
        return None
    if isinstance(of, StructType):
        return {field.name: value(field.field_type, choices) for field in of.fields}
    if isinstance(of, ListType):
        return [value(of.element_type, choices) for _ in range(choices.randrange(4))]
    return choices.choice(dict(FLAT_VALUES)[of])


@pytest.mark.parametrize(
    "of", [kind for kind, _ in FLAT_VALUES if not isinstance(kind, _WITHOUT_SPARK_TYPE)] + NESTED, ids=str
)
def test_diffs_are_sorted_as_order_by_sorts(spark: SparkSession, of: IcebergType) -> None:
    choices = random.Random(str(of))
    column = pa.array([value(of, choices) for _ in range(80)], arrow_type(of))
    position = pa.array(range(80), pa.int64())  # equal values keep the order of their positions
    rows = pa.table({"c": column, "position": position})
    by_spark = spark.createDataFrame(rows).orderBy("c", "position").select("position").collect()
    by_keys = sorted_positions([*order_keys(rows.column("c")), position])
    assert position.take(by_keys).to_pylist() == [row.position for row in by_spark]


@pytest.mark.parametrize(
    "shape",
    [
        Raw(),
        UpsertEnvelope(("k",)),
        OrderedWithin((OrderItem("k % 3", direction="DESC NULLS LAST"), OrderItem("", 2, "ASC NULLS LAST"))),
    ],
    ids=["row", "key", "order by"],
)
def test_the_order_does_not_depend_on_the_number_of_chunks(spark: SparkSession, shape: OutputShape) -> None:
    choices = random.Random(7)
    columns = pa.schema([("v", pa.string()), ("k", pa.int64())])
    rows = [(choices.choice([None, "", "a", "ä", "z"]), choices.choice([None, *range(9)])) for _ in range(500)]
    frame = dated(spark.createDataFrame(rows, "v string, k bigint"), 7, 1)
    output = Output(shape, columns, progress=False, up_to_ms=None)

    def chunks(at_most: int) -> list[pa.Table]:
        return list(streamed(output.sorting.on_spark(LargeDiffs(frame, at_most), columns.names), output.diffs))

    few, many = chunks(at_most=500), chunks(at_most=10_000_000)
    assert len(many) > len(few)
    assert pa.concat_tables(many).to_pylist() == pa.concat_tables(few).to_pylist()
