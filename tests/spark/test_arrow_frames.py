"""An Arrow table becomes a DataFrame with all of its rows, however many chunks the table has."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakehold.arrow_frames import frame_of

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("headers", pa.list_(pa.struct([("key", pa.string())])))])
DDL = "id bigint, headers array<struct<key: string>>"


def chunk(*ids: int) -> pa.Table:
    return pa.table({"id": [*ids], "headers": [[{"key": str(number)}] for number in ids]}, schema=SCHEMA)


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([chunk(1), chunk(), chunk(2, 3)], id="an empty chunk in between"),
        pytest.param([chunk(), chunk(1, 2, 3)], id="an empty chunk first"),
        pytest.param([chunk(1, 2), chunk(3), chunk()], id="an empty chunk last"),
        pytest.param([chunk()], id="one chunk without rows"),
        pytest.param([], id="no chunk"),
    ],
)
def test_no_row_is_lost(spark: SparkSession, chunks: list[pa.Table]) -> None:
    table = pa.concat_tables(chunks) if chunks else chunk(1).filter(pa.array([False]))
    assert table["headers"].num_chunks == len(chunks)
    frame = frame_of(table, spark, DDL)
    assert frame.dtypes == [("id", "bigint"), ("headers", "array<struct<key:string>>")]
    expected = {(row["id"], row["headers"][0]["key"]) for row in table.to_pylist()}
    assert {(row.id, row.headers[0].key) for row in frame.collect()} == expected
