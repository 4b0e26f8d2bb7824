"""Types in files that Arrow reads as Spark does, and types that lakehold leaves to Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from lakehold.subscribe.stored_types import reads_alike


@pytest.mark.parametrize(
    ("stored", "target", "alike"),
    [
        (pa.int8(), IntegerType(), True),
        (pa.uint8(), IntegerType(), False),
        (pa.uint32(), LongType(), False),
        (pa.int32(), LongType(), True),
        (pa.float32(), DoubleType(), True),
        (pa.float16(), DoubleType(), False),
        (pa.decimal128(9, 2), DecimalType(18, 2), True),
        (pa.decimal128(10, 3), DecimalType(12, 2), False),
        (pa.date32(), DateType(), True),
        (pa.date32(), TimestampType(), True),
        (pa.timestamp("us"), TimestamptzType(), True),
        (pa.timestamp("us", "America/New_York"), TimestamptzType(), True),
        (pa.timestamp("ms"), TimestampType(), False),
        (pa.timestamp("ns", "UTC"), TimestamptzType(), False),
        (pa.timestamp("ns"), TimestampNanoType(), True),
        (pa.dictionary(pa.int8(), pa.string()), StringType(), True),
        (pa.large_string(), StringType(), True),
        (pa.binary(), StringType(), False),
        (pa.uuid(), StringType(), False),
        (pa.uuid(), UUIDType(), True),
        (pa.binary(16), UUIDType(), True),
        (pa.binary(3), BinaryType(), True),
        (pa.string(), BinaryType(), False),
        (pa.null(), IntegerType(), False),
    ],
    ids=str,
)
def test_types_that_arrow_reads_as_spark_does_are_recognized(
    stored: pa.DataType, target: IcebergType, alike: bool
) -> None:
    assert reads_alike(stored, target, target) is alike
    source = StructType(NestedField(1, "a", ListType(2, target)), NestedField(3, "b", IntegerType()))
    wanted = StructType(NestedField(1, "renamed", ListType(2, target)))
    struct = pa.struct([("a", pa.list_(stored)), ("b", pa.uint64())])
    assert reads_alike(struct, source, wanted) is alike
