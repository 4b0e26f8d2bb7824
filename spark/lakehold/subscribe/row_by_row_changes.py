"""Changes of a query that works row by row: the query runs over the diffs of its table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame

from lakehold.spark_sql import quoted
from lakehold.subscribe.arrow_query import ArrowQuery
from lakehold.subscribe.delta_terms import CARRIED, DIFF, TIME, as_diffs
from lakehold.subscribe.diffed_rows import DiffedRows
from lakehold.subscribe.on_spark import LargeDiffs, frame_of_diffs, view_name
from lakehold.subscribe.query_relation import typed, with_diff
from lakehold.subscribe.relation import TimelinesByName
from lakehold.subscribe.sorting import Sorting
from lakehold.subscribe.statement import Query
from lakehold.subscribe.table_diffs import DiffReading, TableDiffs
from lakehold.subscribe.timeline_steps import steps
from lakehold.subscribe.version_reads import VersionReads


@dataclass(frozen=True)
class RowByRow(DiffedRows):
    """A query over one table that filters and computes row by row, so that it can run over the table's diffs.

    Args:
        query: The query. Its `columns_at`, where columns are inserted, is not None: the query works row by row.
        name: The table's full name.
        schema: The table's columns, fixed for the whole output.
        reading: Reads diffs.
        result: The columns of the query's result.
        arrow_query: Answers the query in this process; None if Spark has to.
    """

    query: Query
    name: str
    schema: Schema
    reading: DiffReading
    result: pa.Schema = field(compare=False)
    arrow_query: ArrowQuery | None = field(compare=False)

    def rows(self, timelines: TimelinesByName, at_ms: int, sorting: Sorting) -> Iterator[pa.Table]:
        """Run the query over the table's rows at `at_ms`."""
        return self._sorted(
            self._over(TableDiffs(timelines[self.name], self.schema, self.reading, exact=True).rows_at(at_ms)), sorting
        )

    def diffs(
        self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int
    ) -> Iterator[pa.Table | LargeDiffs]:
        """Run the query over the table's diffs."""
        timeline = timelines[self.name]
        diffs = TableDiffs(timeline, self.schema, self.reading, exact=True)
        return self._over(diffs.along(steps(timeline, after_exclusive_ms, until_exclusive_ms)))

    def frame_at(self, timelines: TimelinesByName, at_ms: int) -> DataFrame:
        """Run the query over the table's rows on Spark."""
        reads = VersionReads(self.reading.spark, {self.name: self.schema}, timelines)
        return reads.select(self.query.over({}, {self.name: reads.at(self.name, at_ms)}))

    def _over(self, found: Iterable[pa.Table | LargeDiffs]) -> Iterator[pa.Table | LargeDiffs]:
        for diffs in found:
            if isinstance(diffs, LargeDiffs):
                yield replace(diffs, frame=self._applied(diffs.frame))
                continue
            rows = self.arrow_query.of(diffs) if self.arrow_query is not None else self._answered_by_spark(diffs)
            if rows.num_rows:
                yield rows

    def _answered_by_spark(self, diffs: pa.Table) -> pa.Table:
        frame = frame_of_diffs(diffs, self.reading.spark.session())
        return typed(self._applied(frame).toArrow(), with_diff(self.result))

    def _applied(self, diffs: DataFrame) -> DataFrame:
        """Run the query over a frame of diffs, and return a frame of diffs: timestamp, diff, the columns of the query.

        Timestamp and diff are inserted as the first two columns of the select list; copies that `*` adds are dropped.
        """
        visible = diffs.toDF(TIME, DIFF, *(column.name for column in self.schema.fields))
        inserted = "".join(f" {quoted(name)} AS {quoted(carried)}," for name, carried in CARRIED.items())
        view = view_name()
        text = self.query.over(tables={}, views={self.name: view}, columns=inserted)
        return as_diffs(self.reading.spark.select(text, {view: visible}))
