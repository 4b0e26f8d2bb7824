"""Raw records in the form in which a reader returns them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from lakehold.ingest.read.reader import RAW_DDL


def raw_records(
    spark: SparkSession, records: Sequence[tuple[bytes | None, bytes | None]], topic: str = "shop.public.t"
) -> DataFrame:
    """Make a frame of (key, value) pairs as the records of one partition, with offsets from 0."""
    rows = [(topic, 0, i, 1_000 + i, k, v, None) for i, (k, v) in enumerate(records)]
    return spark.createDataFrame(rows, RAW_DDL)
