"""An Arrow table becomes a DataFrame with all of its rows, however many chunks the table has."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakehold.arrow_frames import frame_of

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("headers", pa.list_(pa.struct([("key", pa.string())])))])
DDL = "id bigint, headers array<struct<key: string>>"


def piece(*ids: int) -> pa.Table:
    return pa.table({"id": [*ids], "headers": [[{"key": str(number)}] for number in ids]}, schema=SCHEMA)


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([piece(1), piece(), piece(2, 3)], id="an empty piece in between"),
        pytest.param([piece(), piece(1, 2, 3)], id="an empty piece first"),
        pytest.param([piece(1, 2), piece(3), piece()], id="an empty piece last"),
        pytest.param([piece()], id="one piece without rows"),
        pytest.param([], id="no piece"),
    ],
)
def test_no_row_is_lost(spark: SparkSession, pieces: list[pa.Table]) -> None:
    table = pa.concat_tables(pieces) if pieces else piece(1).filter(pa.array([False]))
    assert table["headers"].num_chunks == len(pieces)
    frame = frame_of(table, spark, DDL)
    assert frame.dtypes == [("id", "bigint"), ("headers", "array<struct<key:string>>")]
    expected = {(row["id"], row["headers"][0]["key"]) for row in table.to_pylist()}
    assert {(row.id, row.headers[0].key) for row in frame.collect()} == expected
