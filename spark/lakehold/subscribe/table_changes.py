"""Changes of a table as rows that others compute with: a data frame for a query of Spark's, or a stream of Arrow batches.

The rows are those of a SUBSCRIBE without its snapshot. With NET, all changes of the range are read as one step.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from lakehold.errors import NotReadable
from lakehold.spark_errors import readable_each
from lakehold.subscribe.change_frames import change_frame
from lakehold.subscribe.relation import TableRelation
from lakehold.subscribe.statement import Changes
from lakehold.subscribe.subscription_opening import Opened, Subscribing
from lakehold.subscribe.table_diffs import TableDiffs
from lakehold.subscribe.timeline_steps import Step, net_step, steps
from lakehold.timeline.table_timeline import Timeline
from lakehold.times import iso

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableChanges:
    """The changes of one table in a range of time.

    Args:
        opened: A SUBSCRIBE of the table, opened for this range.
        relation: The table's rows.
        timeline: The table's timeline.
        net: Whether all changes of the range are read as one.
    """

    opened: Opened
    relation: TableRelation
    timeline: Timeline
    net: bool

    @property
    def notices(self) -> tuple[str, ...]:
        """Return notices for the reader, for example that UP TO is not reached yet."""
        return self.opened.notices

    @property
    def from_ms(self) -> int:
        """Return the time whose history is needed while the rows are read: the changes after it come."""
        return self.opened.window.as_of_ms

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream, by timestamp and row or key; memory does not limit their number. Log the notices.

        Raises:
            NotReadable: A batch or a commit may still bring changes before UP TO, or that is in the future.
        """
        self._check_complete()
        for notice in self.notices:
            logger.warning("%s: %s", self.relation.name, notice)
        schema = self.opened.subscription.output.schema
        return pa.RecordBatchReader.from_batches(schema, readable_each(self._batches()))

    def frame(self) -> DataFrame:
        """Return the rows as a data frame, in any order; the driver reads few rows itself, and Spark many."""
        output, reading = self.opened.subscription.output, self.relation.reading
        diffs = TableDiffs(self.timeline, self.relation.schema, reading).together(self._steps(), output.sorting.first)
        return change_frame(diffs, output, reading)

    def _check_complete(self) -> None:
        """Refuse an end from which a program would go on, though changes before it may still come."""
        wanted_ms, upper_ms = self.opened.subscription.statement.up_to_ms, self.timeline.upper_ms
        if wanted_ms is not None and upper_ms < wanted_ms:
            raise NotReadable(
                f'the changes of "{self.relation.name}" before {wanted_ms} are not complete yet',
                detail=f"More of them may come. Readable: {self.timeline.window}.",
                hint=f"End at {upper_ms} ({iso(upper_ms)} UTC) or earlier, or leave out the end to get what can be read now.",
            )

    def _batches(self) -> Iterator[pa.RecordBatch]:
        output = self.opened.subscription.output
        with self.opened.read_leases.acquire((self.relation.name,), self.from_ms):
            diffs = self.relation.along(self.timeline, self._steps(), output.sorting)
            for table in output.shaped(diffs):
                yield from table.to_batches()

    def _steps(self) -> list[Step]:
        window = self.opened.window
        if window.until_ms <= window.as_of_ms:
            return []
        along = net_step if self.net else steps
        return list(along(self.timeline, window.as_of_ms, window.until_ms))


def open_changes(subscribing: Subscribing, changes: Changes) -> TableChanges:
    """Open the changes of a table on the lake as it is now.

    Raises:
        DefinitionError: The table, or a column of the key, does not exist.
        NotReadable: The table is not readable at the time after which changes are wanted.
        StatementBounds: The end is before the beginning.
    """
    opened = subscribing.open(changes.subscribe)
    relation = opened.subscription.relation
    assert isinstance(relation, TableRelation)
    return TableChanges(opened, relation, opened.timelines[changes.table], changes.net)
