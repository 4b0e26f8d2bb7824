"""The diffs of one table along its versions: read from the files that changed, in this process or, when they are many, by Spark.

Small steps are read together: a data file whose rows went at several timestamps is opened once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
from cachetools import LRUCache
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame

from lakehold.subscribe.changed_rows import ChangedRows
from lakehold.subscribe.deleted_positions import VECTORS_REMEMBERED, DeletedPositions, FilesUnreadable, Positions
from lakehold.subscribe.file_rows import DatedPick, FileRows, FoundRows, file_rows
from lakehold.subscribe.live_files import LiveFile, LiveFiles, RememberedFiles
from lakehold.subscribe.on_spark import Many, OnSpark, dated
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

    files: RememberedFiles = field(default_factory=RememberedFiles)
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

    def along(self, steps: Iterable[Step]) -> Iterator[pa.Table | Many]:
        """The diffs of `steps`: tables of all rows of some timestamps, `Many` for one timestamp that is too large."""
        changed, reader = self._changed(), file_rows(self.timeline.table, self.columns)
        small = _SmallSteps(reader, self.reading.workers)
        for step in steps:
            try:
                picks = [DatedPick(step.mz_timestamp, pick) for pick in changed.between(step.before, step.after)]
            except FilesUnreadable:
                picks = None
            count = sum(dated.pick.rows for dated in picks or ())
            if picks is None or small.rows + count > self.reading.driver_rows:
                yield from self._read(small)
                small = _SmallSteps(reader, self.reading.workers)
            if picks is None:
                yield self._from_states(step)
            elif count > self.reading.driver_rows:
                yield self.reading.spark.picked(reader, picks)
            else:
                small.add(step, picks)
        yield from self._read(small)

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
        return ChangedRows(LiveFiles(table, remembered.files), DeletedPositions(table.io, remembered.positions))

    def _read(self, small: _SmallSteps) -> Iterator[pa.Table | Many]:
        try:
            found = small.read()
        except FilesUnreadable:
            yield from map(self._from_states, small.steps)
            return
        if found is not None:
            yield found

    def rows_at(self, at_ms: int) -> Iterator[pa.Table | Many]:
        """All rows of the table at a time, as diffs of that time."""
        version = self.timeline.at(at_ms)
        if version is None:
            return
        step = Step(at_ms, None, version.snapshot_id)
        count = self.timeline.row_count(version.snapshot_id)
        if count is None or count > self.reading.driver_rows:
            yield self._from_states(step)
        else:
            yield from self.along([step])

    def _from_states(self, step: Step) -> Many:
        """Both ends read whole: for deletes and files that only Spark can read."""
        ends = [
            (snapshot_id, diff) for snapshot_id, diff in ((step.after, 1), (step.before, -1)) if snapshot_id is not None
        ]
        states = [
            (self.reading.spark.state(self.timeline, snapshot_id, self.columns), diff) for snapshot_id, diff in ends
        ]
        counts = [self.timeline.row_count(snapshot_id) for snapshot_id, _ in ends]
        frame = reduce(DataFrame.unionAll, (dated(rows, step.mz_timestamp, diff) for rows, diff in states))
        return Many(frame, sum(count for count in counts if count is not None) if None not in counts else 0)


class _SmallSteps:
    """Steps whose rows are read together: whole files while later steps are looked at, others when all picks are known."""

    def __init__(self, reader: FileRows, workers: Executor) -> None:
        self.steps: list[Step] = []
        self.rows = 0
        self._reader = reader
        self._workers = workers
        self._begun: list[Future[FoundRows]] = []
        self._of_file: dict[str, tuple[LiveFile, list[DatedPick]]] = {}

    def add(self, step: Step, picks: Iterable[DatedPick]) -> None:
        self.steps.append(step)
        for dated_pick in picks:
            self.rows += dated_pick.pick.rows
            file = dated_pick.pick.file
            if dated_pick.pick.is_whole_file:
                self._begun.append(self._workers.submit(self._reader.read, file, [dated_pick]))
            else:
                self._of_file.setdefault(file.path, (file, []))[1].append(dated_pick)

    def read(self) -> pa.Table | None:
        """The diffs of the steps; None: there are none."""
        self._begun += [self._workers.submit(self._reader.read, *work) for work in self._of_file.values()]
        found = [future.result() for future in self._begun]
        return self._reader.shaped(found) if found else None
