"""Relations whose diffs are computed from the diffs of their tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from lakehold.subscribe.on_spark import LargeDiffs, streamed, summed
from lakehold.subscribe.query_relation import with_diff
from lakehold.subscribe.relation import Relation, TimelinesByName
from lakehold.subscribe.sorting import Sorting
from lakehold.subscribe.table_diffs import DiffReading


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
