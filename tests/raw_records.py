"""Raw records as a reader gives them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

RAW = "topic string, partition int, offset bigint, timestamp_ms bigint, key binary, value binary"


def raw_records(
    spark: SparkSession, records: Sequence[tuple[bytes | None, bytes | None]], topic: str = "shop.public.t"
) -> DataFrame:
    """(key, value) pairs as the records of one partition, offsets from 0."""
    return spark.createDataFrame([(topic, 0, i, 1_000 + i, k, v) for i, (k, v) in enumerate(records)], RAW)
