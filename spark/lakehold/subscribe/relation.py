"""Relations that a SUBSCRIBE reads: a table, a query that works row by row, or any other query.

A relation gives its rows and their changes as tables of diffs (`mz_timestamp, mz_diff, columns`). They are consolidated (equal
rows of a timestamp are summed), in the order of a `Sorting`, with ascending timestamps. A table has all rows of one or more
timestamps, except where a result is too large for this process: then consecutive tables share a timestamp.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema

from lakehold.subscribe.consolidate import merged
from lakehold.subscribe.file_rows import diff_schema
from lakehold.subscribe.on_spark import LargeDiffs, streamed, summed
from lakehold.subscribe.sorting import Sorting
from lakehold.subscribe.table_diffs import DiffReading, TableDiffs
from lakehold.subscribe.timeline_steps import Step, steps
from lakehold.timeline.table_timeline import Timeline

TimelinesByName = Mapping[str, Timeline]
"""The timelines of a relation's tables by full name."""


class Relation(ABC):
    """Rows that change over time."""

    @property
    @abstractmethod
    def columns(self) -> pa.Schema:
        """Return the row's columns."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the row's columns, as Spark shows them."""
        return tuple(self.columns.names)

    @abstractmethod
    def rows(self, timelines: TimelinesByName, at_ms: int, sorting: Sorting) -> Iterator[pa.Table]:
        """Read all rows at `at_ms`, as diffs of that timestamp."""

    @abstractmethod
    def changes(
        self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int, sorting: Sorting
    ) -> Iterator[pa.Table]:
        """Read the diffs of every timestamp after `after_exclusive_ms` and before `until_exclusive_ms`."""


@dataclass(frozen=True)
class TableRelation(Relation):
    """The rows of a table.

    Args:
        name: The table's full name.
        schema: The table's columns when the subscription began, fixed for the whole output.
        reading: Reads diffs.
    """

    name: str
    schema: Schema
    reading: DiffReading

    @property
    def columns(self) -> pa.Schema:
        """Return the table's columns."""
        return pa.schema(list(diff_schema(self.schema))[2:])

    def rows(self, timelines: TimelinesByName, at_ms: int, sorting: Sorting) -> Iterator[pa.Table]:
        """Read all rows of the table at `at_ms`; Spark sorts a large table."""
        for found in TableDiffs(timelines[self.name], self.schema, self.reading).rows_at(at_ms, sorting.first):
            if isinstance(found, LargeDiffs):
                yield from merged(self._streamed(summed(found) if sorting.reads_diff else found, sorting))
            else:
                yield sorting.sort_consolidated(found, self.reading.spark.session)

    def changes(
        self, timelines: TimelinesByName, after_exclusive_ms: int, until_exclusive_ms: int, sorting: Sorting
    ) -> Iterator[pa.Table]:
        """Read the diffs between the table's versions in the interval."""
        timeline = timelines[self.name]
        yield from self.along(timeline, steps(timeline, after_exclusive_ms, until_exclusive_ms), sorting)

    def along(self, timeline: Timeline, steps: Iterable[Step], sorting: Sorting) -> Iterator[pa.Table]:
        """Read the diffs of `steps`."""
        for found in TableDiffs(timeline, self.schema, self.reading).along(steps, sorting.first):
            if isinstance(found, LargeDiffs):
                yield from self._streamed(summed(found), sorting)
            else:
                yield sorting.sort_consolidated(found, self.reading.spark.session)

    def _streamed(self, diffs: LargeDiffs, sorting: Sorting) -> Iterator[pa.Table]:
        return streamed(sorting.on_spark(diffs, self.names), diff_schema(self.schema))
