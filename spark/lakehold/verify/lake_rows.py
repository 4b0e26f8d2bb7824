"""Digests of rows of the lake for `lakehold verify`, of a snapshot of a table or of a query, computed where Spark reads them.

Digests are 64-bit numbers for rows and keys. A *bucket* is all keys whose digests begin with the same 16 bits (`digest.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehold.executor_python import Batches, map_in_arrow
from lakehold.spark_sql import quoted
from lakehold.verify.digest import BucketSums, column_digests, row_digests
from lakehold.verify.selected_rows import ROWS_DDL, FirstKey, Selection

_SUMS_DDL = "bucket bigint, rows bigint, low bigint, high bigint"
"""`BucketSums.to_batch`: `low` and `high` are the sums of the lower and of the upper 32 bits of the rows' digests."""


@dataclass(frozen=True)
class LakeRows:
    """The digests of a table's rows in one snapshot.

    Args:
        spark: The session.
        table: The table as SQL, with its catalog.
        snapshot_id: The snapshot; None: the table has no rows.
        columns: The compared columns, the key's first.
        key: How many columns the key has, at least one: all of them in a table without a key.
    """

    spark: SparkSession
    table: str
    snapshot_id: int | None
    columns: tuple[str, ...]
    key: int

    def sums(self) -> BucketSums:
        """Digest all rows; return the sums of digests by the bucket of their key."""
        return FrameRows(self._frame(), self.key).sums() if self.snapshot_id is not None else BucketSums()

    def selected(self, selection: Selection, first_key: FirstKey | None = None) -> list[pa.RecordBatch]:
        """Return the digests of single rows, of those buckets or keys that `selection` names.

        Args:
            selection: The rows.
            first_key: Values of the first key column that the rows have: Spark skips files whose statistics exclude these values.
        """
        if self.snapshot_id is None:
            return []
        frame = self._frame()
        if first_key is not None:
            is_whole = first_key.type == "bigint"
            frame = frame.where(F.col("c0").isin([int(text) if is_whole else text for text in first_key.values]))
        return FrameRows(frame, self.key).selected(selection)

    def _frame(self) -> DataFrame:
        return numbered(self.spark.read.option("versionAsOf", str(self.snapshot_id)).table(self.table), self.columns)


@dataclass(frozen=True)
class FrameRows:
    """The digests of a data frame's rows.

    Args:
        frame: The rows, with the columns of `numbered`.
        key: How many columns the key has, at least one.
    """

    frame: DataFrame
    key: int

    def sums(self) -> BucketSums:
        """Digest all rows; return the sums of digests by the bucket of their key."""
        total = BucketSums()
        parts = map_in_arrow(self.frame, _summing(self.key), _SUMS_DDL)
        sums = parts.groupBy("bucket").agg(*(F.sum(name).alias(name) for name in ("rows", "low", "high")))
        total.add_batch(sums.toArrow())
        return total

    def selected(self, selection: Selection) -> list[pa.RecordBatch]:
        """Return the digests of single rows, of those buckets or keys that `selection` names."""
        return list(map_in_arrow(self.frame, _selecting(self.key, selection), ROWS_DDL).toArrow().to_batches())


def numbered(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Select `columns`, the key's first, and call them `c0`, `c1`, …: their own names may be anything."""
    return frame.select(*(F.col(quoted(name)).alias(f"c{place}") for place, name in enumerate(columns)))


def _summing(key: int) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return a function for `map_in_arrow` that sums the digests of one Spark partition, by bucket."""

    def sums_of_partition(batches: Batches) -> Iterator[pa.RecordBatch]:
        sums = BucketSums()
        for batch in batches:
            if batch.num_rows:
                digests = [column_digests(column) for column in batch.columns]
                sums.add(row_digests(digests[:key]), row_digests(digests))
        yield sums.to_batch()

    return sums_of_partition


def _selecting(key: int, selection: Selection) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return a function for `map_in_arrow` that digests the selected rows of one Spark partition."""

    def selected(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                digests = [column_digests(column) for column in batch.columns]
                yield selection.rows(digests, key_texts(batch.columns[:key]))

    return selected


def key_texts(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Return the texts of the columns of a key."""
    return [_texts(column) for column in columns]


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
    if pa.types.is_nested(column.type):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    return column.cast(pa.string())
