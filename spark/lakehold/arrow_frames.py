"""Arrow tables as DataFrames: the only place that converts them, because Spark does not accept all of them as they are."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def frame_of(table: pa.Table, spark: SparkSession, schema: str | StructType) -> DataFrame:
    """Make a DataFrame of a table in the driver, with the same rows.

    The table goes to Spark in one chunk. Spark (4.1) takes an empty chunk for the end and drops the rows after it. It
    also fails on a nested column without chunks, which a filter leaves when no row passes.

    Args:
        table: Its columns are in the order of `schema`.
        spark: The session.
        schema: The columns, as DDL or as a type: Spark Connect does not find them in a table without rows.
    """
    whole = table.combine_chunks() if table.num_rows else table.schema.empty_table()
    return spark.createDataFrame(whole, schema)
