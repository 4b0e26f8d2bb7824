"""Changes of queries whose result rows depend on few other rows: the query at both ends of a timestamp, over these rows only.

It is for windows, whose rows depend on their partition, and for aggregates of which no state is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.spark_sql import quoted
from lakehold.subscribe.diffed_rows import DiffedRows, Job, JobRows
from lakehold.subscribe.incremental_plan import RowQuery
from lakehold.subscribe.on_spark import LargeDiffs, dated, frame_of_diffs
from lakehold.subscribe.query_relation import QueryRelation, here_or_large
from lakehold.subscribe.relation import TimelinesByName
from lakehold.subscribe.sorting import Sorting
from lakehold.subscribe.table_diffs import DiffReading
from lakehold.subscribe.version_reads import VersionReads, row_column

_STEPS_A_JOB = 8
"""Timestamps that Spark computes in one job: the plan contains the query twice for each."""


@dataclass(frozen=True)
class TouchedColumn:
    """A column with whose values the rows that a result row depends on are found.

    Attributes:
        place: Its place among the columns of the keys.
        name: Its name in its table.
    """

    place: int
    name: str


@dataclass(frozen=True)
class TouchedRows(JobRows):
    """A query whose result rows each depend on the joined rows with the same values of some columns.

    Args:
        query: The query.
        source: The place of the table that has these columns; no joined row is without a row of this table.
        touched: These columns.
        keys: The values of the columns in each joined row.
        whole: Computes the query's result.
        reading: Reads diffs.
        result: The columns of the query's result.
    """

    query: RowQuery
    source: int
    touched: tuple[TouchedColumn, ...]
    keys: DiffedRows
    whole: QueryRelation
    reading: DiffReading
    result: pa.Schema = field(compare=False)

    def rows(self, timelines: TimelinesByName, at_ms: int, sorting: Sorting) -> Iterator[pa.Table]:
        """Compute the query's result at `at_ms`."""
        return self.whole.rows(timelines, at_ms, sorting)

    def frame_at(self, timelines: TimelinesByName, at_ms: int) -> DataFrame:
        """Compute the query's result at `at_ms` on Spark."""
        return self.whole.result_at(timelines, at_ms)

    def jobs(self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int) -> Iterator[Job]:
        """Yield jobs that compute both ends of each timestamp, over the rows with values that some changed row has."""
        for found in self.keys.diffs(timelines, after_exclusive_ms, until_exclusive_ms):
            # The keys must not be summed: a row that keeps its key while another column changes comes and goes.
            if isinstance(found, LargeDiffs):
                keys, at = found.frame, list(found.times)
            else:
                keys = frame_of_diffs(found, self.reading.spark.session())
                at = sorted(pc.unique(found.column(0)).to_pylist())
            for start in range(0, len(at), _STEPS_A_JOB):
                some = at[start : start + _STEPS_A_JOB]
                yield Job(some[0] - 1, some[-1], partial(self._diffs, timelines, keys, some))

    def _diffs(
        self, timelines: TimelinesByName, keys: DataFrame, some: Sequence[int]
    ) -> Iterator[pa.Table | LargeDiffs]:
        reads = VersionReads(self.reading.spark, self.whole.schemas, timelines)
        terms: list[DataFrame] = []
        for at_ms in some:
            terms += self._both_ends(reads, keys.filter(F.col(keys.columns[0]) == at_ms), at_ms)
        yield from here_or_large(reduce(DataFrame.unionAll, terms), self.result, self.reading.driver_rows, some)

    def _both_ends(self, reads: VersionReads, keys: DataFrame, at_ms: int) -> Iterator[DataFrame]:
        names = [f"lakehold_k{column.place}" for column in self.touched]
        of_keys = [keys.columns[2 + column.place] for column in self.touched]
        view = reads.view(keys.select(*of_keys).toDF(*names).distinct())
        equal = [
            f"{row_column(quoted(column.name))} <=> lakehold_keys.{name}"
            for column, name in zip(self.touched, names, strict=True)
        ]
        condition = f"EXISTS (SELECT 1 FROM {view} AS lakehold_keys WHERE {' AND '.join(equal)})"
        for end_ms, diff in ((at_ms - 1, -1), (at_ms, 1)):
            relations = [
                reads.at(source.full_name, end_ms, condition if place == self.source else "")
                for place, source in enumerate(self.query.sources)
            ]
            yield dated(reads.select(self.query.over(relations)), at_ms, diff)
