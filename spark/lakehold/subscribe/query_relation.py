"""Changes of the result of any query: at each timestamp its result then, minus its result at the timestamp before.

This is the way for queries of which no other is known (`incremental_plan`), and for the first rows of a query.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame

from lakehold.subscribe.consolidate import merged
from lakehold.subscribe.on_spark import (
    LargeDiffs,
    dated,
    dated_between,
    streamed,
    summed,
)
from lakehold.subscribe.relation import Relation, TimelinesByName
from lakehold.subscribe.sorting import Sorting
from lakehold.subscribe.statement import Query
from lakehold.subscribe.table_diffs import DiffReading
from lakehold.subscribe.version_reads import VersionReads

TIMESTAMPS_A_JOB = 8
"""Results of a query that Spark computes in one job: the plan contains the query once per result."""

_UNKNOWN = 0
"""The number of rows of a result, which is known only when Spark has computed it."""


@dataclass(frozen=True)
class QueryRelation(Relation):
    """The result of any query.

    Args:
        query: The query.
        schemas: Schemas of the query's tables, fixed for the whole output.
        reading: Reads diffs.
        result: The columns of the query's result.
        reason: Why the changes are not computed in a way that costs less; completes "because …".
    """

    query: Query
    schemas: Mapping[str, Schema]
    reading: DiffReading
    result: pa.Schema = field(compare=False)
    reason: str = ""

    @property
    def columns(self) -> pa.Schema:
        """Return the columns of the query's result."""
        return self.result

    def rows(self, timelines: TimelinesByName, at_ms: int, sorting: Sorting) -> Iterator[pa.Table]:
        """Compute the query's result at `at_ms`."""
        found = dated(self.result_at(timelines, at_ms), at_ms, 1)
        here = self._sort_here(timelines, [at_ms], found, sorting)
        if here is not None:
            yield here
            return
        many = LargeDiffs(found, rows=_UNKNOWN)
        # Rows of one result need no sum, except if ORDER BY may read `mz_diff`.
        yield from merged(self._streamed(summed(many) if sorting.reads_diff else many, sorting))

    def changes(
        self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int, sorting: Sorting
    ) -> Iterator[pa.Table]:
        """Compute the result at each timestamp minus the result at the previous one.

        Spark computes each result once for both subtractions, and several of them in one job.
        """
        for before, some in _jobs(timelines, after_exclusive_ms, until_exclusive_ms):
            found = self._differences(timelines, before, some)
            here = self._sort_here(timelines, [before, *some], found, sorting)
            if here is not None:
                yield here
            else:
                yield from self._streamed(summed(LargeDiffs(found, rows=_UNKNOWN)), sorting)

    def diffs(
        self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int
    ) -> Iterator[pa.Table | LargeDiffs]:
        """Compute the same as `changes`, neither summed nor sorted: tables or frames with all rows of their timestamps."""
        for before, some in _jobs(timelines, after_exclusive_ms, until_exclusive_ms):
            found = self._differences(timelines, before, some)
            yield from here_or_large(found, self.result, self.reading.driver_rows, some)

    def _sort_here(
        self, timelines: TimelinesByName, times: Sequence[int], found: DataFrame, sorting: Sorting
    ) -> pa.Table | None:
        """Sum and sort diffs in this process; return None if the query's tables, or the diffs, are or may be too large.

        Letting Spark sum and sort them, and fetching them in chunks, is slow however few rows there are.
        """
        at_most = self.reading.driver_rows
        versions = [(timeline, timeline.at(at_ms)) for timeline in timelines.values() for at_ms in times]
        counts = [timeline.row_count(version.snapshot_id) for timeline, version in versions if version is not None]
        if not all(count is not None and count <= at_most for count in counts):
            return None
        rows = found.limit(at_most + 1).toArrow()
        if rows.num_rows > at_most:
            return None
        return sorting.sort_here(typed(rows, with_diff(self.result)), self.reading.spark.session)

    def _differences(self, timelines: TimelinesByName, before_ms: int, times: Sequence[int]) -> DataFrame:
        # Each result, with the timestamps at which its rows came (+1) and went (-1). The first one only goes, the last only
        # comes.
        ends: list[tuple[int, int | None, int | None]] = [(before_ms, None, times[0])]
        ends += [(at, at, went) for at, went in itertools.zip_longest(times, times[1:])]
        frames = [dated_between(self.result_at(timelines, at), came, went) for at, came, went in ends]
        return reduce(DataFrame.unionAll, frames)

    def result_at(self, timelines: TimelinesByName, at_ms: int) -> DataFrame:
        """Run the query over its tables as they were at `at_ms`.

        Each table has the columns that it had when the output began (`schemas`), so that all results have the same ones.
        """
        reads = VersionReads(self.reading.spark, self.schemas, timelines)
        return reads.select(self.query.over({}, {name: reads.at(name, at_ms) for name in timelines}))

    def _streamed(self, diffs: LargeDiffs, sorting: Sorting) -> Iterator[pa.Table]:
        return streamed(sorting.on_spark(diffs, self.names), with_diff(self.result))


def _jobs(
    timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield the timestamps of each job, with the timestamp before them."""
    times = sorted(
        {
            version.mz_timestamp
            for timeline in timelines.values()
            for version in timeline.between(after_exclusive_ms, until_exclusive_ms)
        }
    )
    before = after_exclusive_ms
    for start in range(0, len(times), TIMESTAMPS_A_JOB):
        some = times[start : start + TIMESTAMPS_A_JOB]
        yield before, some
        before = some[-1]


def here_or_large(
    found: DataFrame, result: pa.Schema, at_most: int, times: Sequence[int]
) -> Iterator[pa.Table | LargeDiffs]:
    """Fetch the diffs of `times` if there are at most `at_most`."""
    rows = found.limit(at_most + 1).toArrow()
    if rows.num_rows > at_most:
        yield LargeDiffs(found, _UNKNOWN, tuple(times))
    elif rows.num_rows:
        yield typed(rows, with_diff(result))


def with_diff(row: pa.Schema) -> pa.Schema:
    """Return the columns of diffs for rows with the columns `row`."""
    return pa.schema([pa.field("mz_timestamp", pa.int64()), pa.field("mz_diff", pa.int64()), *row])


def typed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give `table` the names and types of `schema`, column by column."""
    return pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(table.columns, schema, strict=True)], schema=schema
    )
