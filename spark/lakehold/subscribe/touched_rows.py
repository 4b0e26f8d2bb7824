"""Changes of queries whose result rows depend on few other rows: the query at both ends of a timestamp, over these rows only.

It is for windows, whose rows depend on their partition, and for aggregates of which no state is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame

from lakehold.spark_sql import quoted
from lakehold.subscribe.delta_terms import Pieces
from lakehold.subscribe.diffed_rows import DiffedRows
from lakehold.subscribe.incremental_plan import TouchedGroups
from lakehold.subscribe.joined_rows import here_or_large
from lakehold.subscribe.on_spark import LargeDiffs, dated
from lakehold.subscribe.query_relation import QueryRelation
from lakehold.subscribe.relation import TimelinesByName
from lakehold.subscribe.sorting import Sorting
from lakehold.subscribe.table_diffs import DiffReading, TableDiffs
from lakehold.subscribe.timeline_steps import Step, steps
from lakehold.subscribe.version_reads import VersionReads, row_column

_STEPS_A_JOB = 8
"""Timestamps that Spark computes in one job: the plan contains the query twice for each."""


@dataclass(frozen=True)
class TouchedRows(DiffedRows):
    """A query whose result rows each depend on the rows of a table with the same values of some columns.

    Args:
        plan: The query, and these columns.
        whole: Computes the query's result.
        reading: Reads diffs.
        result: The columns of the query's result.
    """

    plan: TouchedGroups
    whole: QueryRelation
    reading: DiffReading
    result: pa.Schema = field(compare=False)

    def rows(self, timelines: TimelinesByName, at_ms: int, sorting: Sorting) -> Iterator[pa.Table]:
        """Compute the query's result at `at_ms`."""
        return self.whole.rows(timelines, at_ms, sorting)

    def frame_at(self, timelines: TimelinesByName, at_ms: int) -> DataFrame:
        """Compute the query's result at `at_ms` on Spark."""
        return self.whole.result_at(timelines, at_ms)

    def diffs(
        self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int
    ) -> Iterator[pa.Table | LargeDiffs]:
        """Compute the result at both ends of each timestamp, over the rows with values that some changed row has."""
        ((name, timeline),) = timelines.items()
        schema = self.whole.schemas[name]
        found = list(steps(timeline, after_exclusive_ms, until_exclusive_ms))
        before_ms = after_exclusive_ms
        for start in range(0, len(found), _STEPS_A_JOB):
            some = found[start : start + _STEPS_A_JOB]
            pieces = Pieces(schema, tuple(TableDiffs(timeline, schema, self.reading).along(some)))
            reads = VersionReads(self.reading.spark, self.whole.schemas, timelines)
            terms: list[DataFrame] = []
            for step in some:
                terms += self._both_ends(reads, pieces.at([step.mz_timestamp]), step, before_ms)
                before_ms = step.mz_timestamp
            if terms:
                yield from here_or_large(reduce(DataFrame.unionAll, terms), self.result, self.reading.driver_rows)

    def _both_ends(self, reads: VersionReads, pieces: Pieces, step: Step, before_ms: int) -> Iterator[DataFrame]:
        if not pieces.found:
            return
        query = self.plan.query
        names = [field.name for field in pieces.schema.fields]
        columns = [next(n for n in names if n.lower() == column.lower()) for column in self.plan.columns]
        keys = pieces.frame(self.reading).select(*(quoted(column) for column in columns))
        keyed = [f"lakehold_k{place}" for place in range(len(columns))]
        view = reads.view(keys.toDF(*keyed).distinct())
        equal = [
            f"{row_column(quoted(column))} <=> lakehold_keys.{key}" for column, key in zip(columns, keyed, strict=True)
        ]
        condition = f"EXISTS (SELECT 1 FROM {view} AS lakehold_keys WHERE {' AND '.join(equal)})"
        for end_ms, diff in ((before_ms, -1), (step.mz_timestamp, 1)):
            relation = reads.at(query.sources[0].full_name, end_ms, condition)
            yield dated(reads.select(query.over([relation], [""])), step.mz_timestamp, diff)
