"""Digests of the rows of a data frame for `lakehold verify`, computed where Spark reads them.

Such rows are those of a query, or of files that only Spark can read. `lake_rows.py` digests all other rows of the lake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehold.executor_python import Batches, map_in_arrow
from lakehold.progress import Task
from lakehold.spark_sql import quoted
from lakehold.verify.digest import BucketSums, column_digests, row_digests
from lakehold.verify.selected_rows import ROWS_DDL, Selection, key_texts

_SUMS_DDL = "bucket bigint, rows bigint, low bigint, high bigint"
"""`BucketSums.to_batch`: `low` and `high` are the sums of the lower and of the upper 32 bits of the rows' digests."""


@dataclass(frozen=True)
class FrameRows:
    """The digests of a data frame's rows.

    Args:
        frame: The rows, with the columns of `numbered`.
        key: How many columns the key has, at least one.
        one_zero: Whether -0.0 and 0.0 are the same value, as for tables that follow diffs.
    """

    frame: DataFrame
    key: int
    one_zero: bool = False

    def sums(self, task: Task) -> BucketSums:
        """Digest all rows; return the sums of digests by the bucket of their key."""
        total = BucketSums()
        parts = map_in_arrow(self.frame, _summing(self.key, one_zero=self.one_zero), _SUMS_DDL)
        sums = parts.groupBy("bucket").agg(*(F.sum(name).alias(name) for name in ("rows", "low", "high")))
        total.add_batch(sums.toArrow())
        task.advance(int(total.rows.sum()))
        return total

    def selected(self, selection: Selection) -> list[pa.RecordBatch]:
        """Return the digests of single rows, of those buckets or keys that `selection` names."""
        selecting = _selecting(self.key, selection, one_zero=self.one_zero)
        return list(map_in_arrow(self.frame, selecting, ROWS_DDL).toArrow().to_batches())


def snapshot_frame(spark: SparkSession, table: str, snapshot_id: int) -> DataFrame:
    """Return the rows of a snapshot of a table, which is given as SQL, with its catalog."""
    return spark.read.option("versionAsOf", str(snapshot_id)).table(table)


def numbered(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Select `columns`, the key's first, and call them `c0`, `c1`, …: their own names may be anything.

    Columns that the frame does not have are null.
    """
    null, present = F.lit(None).cast("int"), {*frame.columns}
    found = (F.col(quoted(name)) if name in present else null for name in columns)
    return frame.select(*(column.alias(f"c{place}") for place, column in enumerate(found)))


def _summing(key: int, *, one_zero: bool) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return a function for `map_in_arrow` that sums the digests of one Spark partition, by bucket."""

    def sums_of_partition(batches: Batches) -> Iterator[pa.RecordBatch]:
        sums = BucketSums()
        for batch in batches:
            if batch.num_rows:
                digests = [column_digests(column, one_zero=one_zero) for column in batch.columns]
                sums.add(row_digests(digests[:key]), row_digests(digests))
        yield sums.to_batch()

    return sums_of_partition


def _selecting(key: int, selection: Selection, *, one_zero: bool) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return a function for `map_in_arrow` that digests the selected rows of one Spark partition."""

    def selected(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                digests = [column_digests(column, one_zero=one_zero) for column in batch.columns]
                yield selection.rows(digests, key_texts(batch.columns[:key]))

    return selected
