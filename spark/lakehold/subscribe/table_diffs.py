"""The diffs of one table along its versions: read from the files that changed, in this process or, when they are many, by Spark.

Small steps are read together: a data file whose rows went at several timestamps is opened once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import pyarrow as pa
from cachetools import LRUCache
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame

from lakehold.subscribe.changed_rows import ChangedRows
from lakehold.subscribe.deleted_positions import VECTORS_REMEMBERED, DeletedPositions, FilesUnreadable, Positions
from lakehold.subscribe.file_rows import DatedPick, FileRows, diff_schema, file_rows
from lakehold.subscribe.live_files import MANIFESTS_REMEMBERED, LiveFile, LiveFiles
from lakehold.subscribe.on_spark import OnSpark, dated
from lakehold.timeline.timelines import Timeline


@dataclass(frozen=True)
class Step:
    """At `mz_timestamp` the table went from one snapshot to another; None: no rows."""

    mz_timestamp: int
    before: int | None
    after: int | None


@dataclass(frozen=True)
class Remembered:
    """What never changes of tables' files, kept for those who read them again."""

    manifests: LRUCache[str, tuple[LiveFile, ...]] = field(default_factory=lambda: LRUCache(MANIFESTS_REMEMBERED))
    positions: LRUCache[tuple[str, int | None], Positions] = field(default_factory=lambda: LRUCache(VECTORS_REMEMBERED))


@dataclass(frozen=True)
class DiffReading:
    """What reading diffs takes.

    Args:
        spark: Reads what is too much for this process.
        workers: Threads that read files.
        remembered: What is known of files.
        driver_rows: Rows up to which a step, or several together, are read in this process.
    """

    spark: OnSpark
    workers: Executor
    remembered: Remembered
    driver_rows: int


@dataclass(frozen=True)
class TableDiffs:
    """The diffs of one table, not summed and not sorted.

    Args:
        timeline: The table.
        columns: The schema of the rows.
        reading: How they are read.
    """

    timeline: Timeline
    columns: Schema
    reading: DiffReading

    @property
    def schema(self) -> pa.Schema:
        """`mz_timestamp`, `mz_diff`, and the table's columns."""
        return diff_schema(self.columns)

    def along(self, steps: Iterable[Step]) -> Iterator[pa.Table | DataFrame]:
        """The diffs of `steps`: tables of all rows of some timestamps, a frame for one timestamp that is too large."""
        changed, reader = self._changed(), file_rows(self.timeline.table, self.columns)
        small: list[DatedPick] = []
        pending: list[Step] = []
        for step in steps:
            try:
                picks = [DatedPick(step.mz_timestamp, pick) for pick in changed.between(step.before, step.after)]
            except FilesUnreadable:
                picks = None
            count = sum(dated.pick.rows for dated in picks or ())
            if picks is None or count + sum(dated.pick.rows for dated in small) > self.reading.driver_rows:
                yield from self._here(reader, small, pending)
                small, pending = [], []
            if picks is None:
                yield self._from_states(step)
            elif count > self.reading.driver_rows:
                yield self.reading.spark.picked(reader, picks)
            else:
                small += picks
                pending.append(step)
        yield from self._here(reader, small, pending)

    def told(self, step: Step) -> str:
        """How a step would be read, for a person."""
        try:
            picks = self._changed().between(step.before, step.after)
        except FilesUnreadable as reason:
            return f"both ends read by Spark: {reason}"
        if not picks:
            return "no change"
        came = sum(pick.rows for pick in picks if pick.diff > 0)
        went = sum(pick.rows for pick in picks if pick.diff < 0)
        files = len({pick.file.path for pick in picks})
        where = "by Spark" if came + went > self.reading.driver_rows else "here"
        return f"+{came} -{went} rows in {files} files, read {where}"

    def _changed(self) -> ChangedRows:
        table, remembered = self.timeline.table, self.reading.remembered
        return ChangedRows(LiveFiles(table, remembered.manifests), DeletedPositions(table.io, remembered.positions))

    def _here(
        self, reader: FileRows, picks: Sequence[DatedPick], steps: Sequence[Step]
    ) -> Iterator[pa.Table | DataFrame]:
        of_file: dict[str, tuple[LiveFile, list[DatedPick]]] = {}
        for dated_pick in picks:
            of_file.setdefault(dated_pick.pick.file.path, (dated_pick.pick.file, []))[1].append(dated_pick)
        try:
            found = list(self.reading.workers.map(lambda work: reader.read(*work), of_file.values()))
        except FilesUnreadable:
            yield from map(self._from_states, steps)
            return
        if found:
            yield pa.concat_tables(found).cast(self.schema)

    def _from_states(self, step: Step) -> DataFrame:
        """Both ends read whole: for deletes and files that only Spark can read."""
        spark = self.reading.spark
        came = dated(spark.state(self.timeline, step.after, self.columns), step.mz_timestamp, 1)
        went = dated(spark.state(self.timeline, step.before, self.columns), step.mz_timestamp, -1)
        return came.unionAll(went)
