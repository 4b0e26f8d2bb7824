"""Diffs as one data frame in the shape that a reader wants: rows of this process, rows that Spark reads, or both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame

from lakehold.arrow_frames import frame_of
from lakehold.executor_python import map_in_arrow
from lakehold.subscribe.consolidate import consolidated
from lakehold.subscribe.on_spark import LargeDiffs, clustered, renamed, summed
from lakehold.subscribe.output_shape import Output
from lakehold.subscribe.query_relation import typed
from lakehold.subscribe.spark_types import spark_schema
from lakehold.subscribe.table_diffs import DiffReading

_READ_WHOLE = 8
"""Steps whose snapshots Spark reads whole, up to which one plan has all of them: it has two scans of the table for each."""


def change_frame(diffs: Sequence[pa.Table | LargeDiffs], output: Output, reading: DiffReading) -> DataFrame:
    """Convert diffs to a data frame with the columns of `output`.

    Args:
        diffs: Tables that are summed and sorted as `output` needs them, and `LargeDiffs` that are not summed.
        output: Shapes the rows; it has no order within a timestamp, and no progress rows.
        reading: Says how many rows this process may have.
    """
    if sum(isinstance(each, LargeDiffs) for each in diffs) > _READ_WHOLE:
        diffs = list(_fetched(diffs, output, reading.driver_rows))
    here = [each for each in diffs if isinstance(each, pa.Table)]
    by_spark = [_shaped_by_spark(each, output) for each in diffs if isinstance(each, LargeDiffs)]
    if here or not by_spark:
        by_spark.append(_frame_of(pa.concat_tables([output.schema.empty_table(), *output.shaped(here)]), reading))
    return reduce(DataFrame.unionAll, by_spark).toDF(*output.columns)


def _fetched(diffs: Iterable[pa.Table | LargeDiffs], output: Output, most_rows: int) -> Iterator[pa.Table | LargeDiffs]:
    """Fetch the sums of diffs, one after the other, while this process has room for them: one plan cannot have all."""
    for each in diffs:
        found = each if isinstance(each, pa.Table) else _fetch(each, output, most_rows)
        if isinstance(found, pa.Table):
            most_rows -= found.num_rows
        yield found


def _fetch(diffs: LargeDiffs, output: Output, most_rows: int) -> pa.Table | LargeDiffs:
    rows = summed(diffs).frame.limit(most_rows + 1).toArrow() if most_rows > 0 else None
    if rows is None or rows.num_rows > most_rows:
        return diffs
    return consolidated(typed(rows, output.diffs), output.sorting.first)


def _frame_of(rows: pa.Table, reading: DiffReading) -> DataFrame:
    columns = _numbered(rows.schema)
    return frame_of(rows.rename_columns(columns.names), reading.spark.session(), spark_schema(columns))


def _shaped_by_spark(diffs: LargeDiffs, output: Output) -> DataFrame:
    """Sum diffs on Spark, and apply the envelope on the executors: there the rows of a key and timestamp come together."""
    if not output.key:
        return summed(diffs).frame
    columns, schema = output.diffs, _numbered(output.schema)

    def shape(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (typed(pa.Table.from_batches([batch]), columns) for batch in batches)
        for shaped in output.shaped(tables):
            yield from typed(shaped, schema).to_batches()

    return map_in_arrow(clustered(diffs, output.key), shape, spark_schema(schema))


def _numbered(columns: pa.Schema) -> pa.Schema:
    """Give columns names that differ from each other, as a frame's must on the way to Spark."""
    return renamed(columns, [f"c{place}" for place in range(len(columns))])
