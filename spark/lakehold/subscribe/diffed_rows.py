"""Relations whose diffs are computed from the diffs of their tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from lakehold.spark_errors import is_sparks
from lakehold.subscribe.on_spark import LargeDiffs, streamed, summed
from lakehold.subscribe.query_relation import QueryRelation, with_diff
from lakehold.subscribe.relation import Relation, TimelinesByName
from lakehold.subscribe.sorting import Sorting
from lakehold.subscribe.table_diffs import DiffReading

_FoundT = TypeVar("_FoundT")


class DiffedRows(Relation):
    """A query whose diffs are computed from the diffs of its tables."""

    reading: DiffReading
    result: pa.Schema

    @property
    def columns(self) -> pa.Schema:
        """Return the columns of the query's result."""
        return self.result

    @abstractmethod
    def diffs(
        self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int
    ) -> Iterator[pa.Table | LargeDiffs]:
        """Read the diffs of each timestamp in the interval.

        Tables of diffs have all rows of one or more timestamps, which ascend from table to table. They are neither summed nor
        sorted.
        """

    @abstractmethod
    def frame_at(self, timelines: TimelinesByName, at_ms: int) -> DataFrame:
        """Compute the query's result at `at_ms` on Spark."""

    def changes(
        self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int, sorting: Sorting
    ) -> Iterator[pa.Table]:
        """Read the diffs of each timestamp in the interval, summed and sorted."""
        return self._sorted(self.diffs(timelines, after_exclusive_ms, until_exclusive_ms), sorting)

    def _sorted(self, found: Iterable[pa.Table | LargeDiffs], sorting: Sorting) -> Iterator[pa.Table]:
        for diffs in found:
            if isinstance(diffs, LargeDiffs):
                yield from streamed(sorting.on_spark(summed(diffs), self.names), with_diff(self.result))
            else:
                yield sorting.sort_here(diffs, self.reading.spark.session)


@dataclass(frozen=True)
class Job:
    """Timestamps whose diffs Spark computes together.

    Attributes:
        after_ms: A time before the first timestamp, and not before the timestamp that precedes it.
        last_ms: The last timestamp.
        diffs: Computes the diffs: one table or frame with all of them, or nothing.
    """

    after_ms: int
    last_ms: int
    diffs: Callable[[], Iterator[pa.Table | LargeDiffs]]


class JobRows(DiffedRows):
    """A query whose diffs Spark computes from parts of its tables; if that fails, from the whole result at each timestamp.

    A job may compare rows that a table has with rows that another one had: a division by zero of such a pair is no error of the
    query. An error of the whole result is one.
    """

    whole: QueryRelation

    @abstractmethod
    def jobs(self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int) -> Iterator[Job]:
        """Yield the jobs of the interval, with ascending timestamps."""

    def diffs(
        self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int
    ) -> Iterator[pa.Table | LargeDiffs]:
        """Compute the diffs of each timestamp, several timestamps in one job."""
        for job in self.jobs(timelines, after_exclusive_ms, until_exclusive_ms):
            whole = self.whole.diffs(timelines, job.after_ms, job.last_ms + 1)
            yield from _unless_spark_fails(job.diffs(), whole)

    def changes(
        self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int, sorting: Sorting
    ) -> Iterator[pa.Table]:
        """Compute the diffs of each timestamp, summed and sorted."""
        for job in self.jobs(timelines, after_exclusive_ms, until_exclusive_ms):
            whole = self.whole.changes(timelines, job.after_ms, job.last_ms + 1, sorting)
            yield from _unless_spark_fails(self._sorted(job.diffs(), sorting), whole)


def _unless_spark_fails(found: Iterator[_FoundT], otherwise: Iterator[_FoundT]) -> Iterator[_FoundT]:
    """Yield what `found` yields, or `otherwise` if Spark fails before the first item.

    Spark sorts large diffs, so it has computed all of them before the first one is there.
    """
    try:
        first = list(islice(found, 1))
    except Exception as error:
        if not is_sparks(error):
            raise
        found, first = otherwise, []
    yield from first
    yield from found
