"""Reads what changed in one table from snapshot to snapshot, as diffs: rows with 1 where they were added, -1 where removed.

Only files that changed are read: in this process, or by Spark if a step changed many rows. Small steps are read together, so
that a data file whose rows were removed at several timestamps is opened once. Diffs that were read in this process are cached.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import chain, islice, takewhile
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyspark.sql import DataFrame

from lakehold.iceberg.attempts import unreadable
from lakehold.subscribe import metrics
from lakehold.subscribe.changed_rows import ChangedRows
from lakehold.subscribe.consolidate import consolidated
from lakehold.subscribe.deleted_positions import VECTORS_REMEMBERED, DeletedPositions, FilesUnreadable, Positions
from lakehold.subscribe.file_rows import DatedSelection, FileRows, FoundRows, best_known, file_rows
from lakehold.subscribe.kept_groups import KeptGroups
from lakehold.subscribe.live_files import LiveFile, LiveFiles, RememberedFiles
from lakehold.subscribe.on_spark import LargeDiffs, OnSpark, dated
from lakehold.subscribe.remembered import Remembered
from lakehold.subscribe.shared_diffs import DiffKey, ReadDiffs, SharedDiffs
from lakehold.subscribe.timeline_steps import Step
from lakehold.timeline.table_timeline import Timeline

_AHEAD = 64
"""Number of steps whose metadata is read ahead, if storage answers slowly."""

QUERIES_REMEMBERED = 200

_SMALL_BYTES = 1 << 16
"""File size up to which reading is mostly work of Python, which threads cannot do at once, and not of Arrow."""


@dataclass(frozen=True)
class DiffReading:
    """The collaborators and caches with which diffs are read.

    Args:
        spark: Reads diffs that are too large for this process.
        workers: Threads that read files.
        shared: Cached diffs, shared by all readers in this process.
        driver_rows: Largest number of rows, in one step or in several read together, that this process reads itself.
        far: Whether storage answers slowly, so that many files are requested at once.
        files: Cached manifests and manifest lists.
        positions: Cached positions of deletes, by the delete file's `place`.
        groups: States of groups, for subscriptions that aggregate.
        opened: How queries are read, by text and columns of the tables: Spark takes longer to say it than to read a small diff.
    """

    spark: OnSpark
    workers: Executor
    shared: SharedDiffs
    driver_rows: int
    far: bool
    files: RememberedFiles = field(default_factory=RememberedFiles)
    positions: Remembered[tuple[str, int | None], Positions] = field(
        default_factory=lambda: Remembered(VECTORS_REMEMBERED)
    )
    groups: KeptGroups = field(default_factory=KeptGroups)
    opened: Remembered[Hashable, Any] = field(default_factory=lambda: Remembered(QUERIES_REMEMBERED))


_Keyed = Sequence[tuple[DiffKey, Step]]
_FileSelections = tuple[LiveFile, Sequence[DatedSelection]]
_Found = tuple[list[pa.Table | LargeDiffs], int]


@dataclass(frozen=True)
class TableDiffs:
    """The diffs of one table.

    Args:
        timeline: The table's timeline.
        columns: The schema in which rows are returned.
        reading: The means of reading.
        exact: Whether only identical rows are summed, for queries: these may tell apart rows that are equal.
    """

    timeline: Timeline
    columns: Schema
    reading: DiffReading
    exact: bool = False

    def along(self, steps: Iterable[Step], first: tuple[int, ...] = ()) -> Iterator[pa.Table | LargeDiffs]:
        """Yield the diffs of `steps`. Several readers of the same steps read the files once.

        Args:
            steps: The steps, by ascending timestamp.
            first: Zero-based positions of the row's columns by which each timestamp's rows are sorted before all others.

        Returns:
            Consolidated tables, in which equal rows of a timestamp are summed; each has all rows of one or more timestamps. For a
            timestamp with too many rows for this process, `LargeDiffs` that are not summed yet.

        Raises:
            DefinitionError: A file of the table is missing or cannot be read.
            UpstreamUnavailable: The object store that the table's files are in does not work.
        """
        rest = tuple((self._key(step), step) for step in steps)
        reader = file_rows(self.timeline.table, self.columns)
        while rest:
            try:
                found, count = self._cached(rest, first) or self._cached_or_read(rest, reader, first)
            except OSError as error:
                raise unreadable(self.timeline.full_name, error) from error
            yield from (diffs for diffs in found if isinstance(diffs, LargeDiffs) or diffs.num_rows)
            rest = rest[count:]

    def together(self, steps: Sequence[Step], first: tuple[int, ...] = ()) -> list[pa.Table | LargeDiffs]:
        """Return the diffs of all `steps`, for a reader that takes them at once; raises as `along` does.

        If they have few rows in all, this process reads them, as with `along`. Otherwise Spark does: in one frame if it can read
        them file by file, and one for each step that it has to read whole. No `LargeDiffs` are summed.
        """
        if not steps:
            return []
        keyed = tuple((self._key(step), step) for step in steps)
        reader = file_rows(self.timeline.table, self.columns)
        try:
            with self.reading.shared.lock_of(self.timeline.table.metadata.table_uuid):
                cached = self._cached(keyed, first)
                if cached is not None and cached[1] == len(steps):
                    return cached[0]
                return self._read_together(keyed, reader, first)
        except OSError as error:
            raise unreadable(self.timeline.full_name, error) from error

    def _read_together(self, keyed: _Keyed, reader: FileRows, first: tuple[int, ...]) -> list[pa.Table | LargeDiffs]:
        found = list(self._selections_ahead(step for _, step in keyed))
        selected = [(step, selections) for step, selections in found if selections is not None]
        rows = sum(dated.selection.rows for _, selections in selected for dated in selections)
        if len(selected) == len(found) and rows <= self.reading.driver_rows:
            small = _SmallSteps()
            for step, selections in selected:
                small.add(step, selections)
            return self._read_here(small, reader, [key for key, _ in keyed], first)
        metrics.DIFFS.labels(read="by_spark").inc(len(found))
        whole = [step for step, selections in found if selections is None]
        every = [dated for _, selections in selected for dated in selections]
        if not self._is_readable(every, reader):
            return [self._from_states(step) for step, _ in found]
        by_file = [self.reading.spark.read_selections(reader, every)] if every else []
        return [*by_file, *(self._from_states(step) for step in whole)]

    def _cached(self, rest: _Keyed, first: tuple[int, ...]) -> _Found | None:
        """Return the cached diffs of the first steps of `rest`, and how many steps these are; None if the first is not cached."""
        keys, steps = zip(*rest, strict=True)
        read = self.reading.shared.find(keys[0])
        if read is None:
            return None
        count = read.leading(keys)
        metrics.DIFFS.labels(read="shared").inc(count)
        return [read.of(keys[0], steps[:count], first, exact=self.exact)], count

    def _cached_or_read(self, rest: _Keyed, reader: FileRows, first: tuple[int, ...]) -> _Found:
        """Wait until other readers of the table's diffs have finished; then return the diffs that they cached, or read some."""
        with self.reading.shared.lock_of(self.timeline.table.metadata.table_uuid):
            return self._cached(rest, first) or self._read(rest, reader, first)

    def _read(self, rest: _Keyed, reader: FileRows, first: tuple[int, ...]) -> _Found:
        """Read the first steps of `rest`: as many as this process can read together, or one large step by Spark.

        Returns the diffs, and the number of steps.
        """
        small = _SmallSteps()
        unread = takewhile(lambda keyed: not self.reading.shared.has(keyed[0]), rest[1:])
        for step, selections in self._selections_ahead(step for _, step in chain(rest[:1], unread)):
            count = sum(dated.selection.rows for dated in selections or ())
            if selections is not None and small.rows + count <= self.reading.driver_rows:
                small.add(step, selections)
            elif small.steps:
                break
            else:
                return [self._large(step, selections, reader)], 1
        return self._read_here(small, reader, [key for key, _ in rest[: len(small.steps)]], first), len(small.steps)

    def _selections_ahead(self, steps: Iterable[Step]) -> Iterator[tuple[Step, list[DatedSelection] | None]]:
        """Yield each step with its `_selections`; if storage answers slowly, threads read the metadata of many steps at once.

        If storage is fast, threads gain nothing: nearly all of the work is Python.
        """
        if not self.reading.far:
            yield from ((step, self._selections(step)) for step in steps)
            return
        rest, workers = iter(steps), self.reading.workers
        while some := list(islice(rest, _AHEAD)):
            self._changed.read_ahead(((step.before, step.after) for step in some), workers)
            yield from zip(some, workers.map(self._selections, some), strict=True)

    def _selections(self, step: Step) -> list[DatedSelection] | None:
        """Select the rows that a step added or removed, by data file; None if only Spark can find them."""
        try:
            return [
                DatedSelection(step.mz_timestamp, selection)
                for selection in self._changed.between(step.before, step.after)
            ]
        except FilesUnreadable:
            return None

    def _large(self, step: Step, selections: Sequence[DatedSelection] | None, reader: FileRows) -> LargeDiffs:
        """Have Spark read one step: the selected rows or, where `FileRows` cannot read these, the table before and after it."""
        metrics.DIFFS.labels(read="by_spark").inc()
        if selections is None or not self._is_readable(selections, reader):
            return self._from_states(step)
        return self.reading.spark.read_selections(reader, selections)

    def _is_readable(self, selections: Sequence[DatedSelection], reader: FileRows) -> bool:
        """Return whether `FileRows` can read the files of `selections`; it can read all files that a source wrote."""
        if self.timeline.source is not None:
            return True
        files = {dated.selection.file.path: dated.selection.file for dated in selections}
        try:
            for _ in self.reading.workers.map(reader.check, files.values()):
                pass
        except FilesUnreadable:
            return False
        return True

    def _read_here(
        self, small: _SmallSteps, reader: FileRows, keys: Sequence[DiffKey], first: tuple[int, ...]
    ) -> list[pa.Table | LargeDiffs]:
        """Read small steps in this process, and cache their diffs. Spark reads them if `FileRows` cannot read a file."""
        try:
            rows = consolidated(small.read(reader, self.reading), first, exact=True)
        except FilesUnreadable:
            metrics.DIFFS.labels(read="by_spark").inc(len(keys))
            return [self._from_states(step) for step in small.steps]
        metrics.DIFFS.labels(read="here").inc(len(keys))
        read = ReadDiffs(keys, small.steps, rows, first)
        self.reading.shared.add(keys, read)
        return [read.whole(exact=self.exact)]

    def _key(self, step: Step) -> DiffKey:
        """Return the key of a step's diffs in the cache."""
        table = self.timeline.table
        names = table.properties.get(TableProperties.DEFAULT_NAME_MAPPING)
        return DiffKey(table.metadata.table_uuid, self.columns.schema_id, names, step.before, step.after)

    def describe(self, step: Step) -> str:
        """Describe for people how a step would be read."""
        if self.reading.shared.has(self._key(step)):
            return "already read"
        try:
            selections = self._changed.between(step.before, step.after)
        except FilesUnreadable as reason:
            return f"both ends read by Spark: {reason}"
        if not selections:
            return "no change"
        came = sum(selection.rows for selection in selections if selection.diff > 0)
        went = sum(selection.rows for selection in selections if selection.diff < 0)
        files = len({selection.file.path for selection in selections})
        where = "by Spark" if came + went > self.reading.driver_rows else "here"
        return f"+{came} -{went} rows in {files} files, read {where}"

    @cached_property
    def _changed(self) -> ChangedRows:
        table, reading = self.timeline.table, self.reading
        return ChangedRows(LiveFiles(table, reading.files), DeletedPositions(table.io, reading.positions))

    def rows_at(self, at_ms: int, first: tuple[int, ...] = ()) -> Iterator[pa.Table | LargeDiffs]:
        """Read all rows of the table at `at_ms`, as diffs (1) of that timestamp; raises as `along` does.

        `first` is as for `along`.
        """
        version = self.timeline.at(at_ms)
        if version is None:
            return
        step = Step(at_ms, None, version.snapshot_id)
        count = self.timeline.row_count(version.snapshot_id)
        if count is None or count > self.reading.driver_rows:
            yield self._from_states(step)
        else:
            yield from self.along([step], first)

    def _from_states(self, step: Step) -> LargeDiffs:
        """Have Spark read the whole table before and after a step, for deletes and files that only Spark can read."""
        ends = [
            (snapshot_id, diff) for snapshot_id, diff in ((step.after, 1), (step.before, -1)) if snapshot_id is not None
        ]
        states = [
            (self.reading.spark.state(self.timeline, snapshot_id, self.columns), diff) for snapshot_id, diff in ends
        ]
        counts = [self.timeline.row_count(snapshot_id) for snapshot_id, _ in ends]
        frame = reduce(DataFrame.unionAll, (dated(rows, step.mz_timestamp, diff) for rows, diff in states))
        rows = sum(count for count in counts if count is not None) if None not in counts else 0
        return LargeDiffs(frame, rows, (step.mz_timestamp,))


class _SmallSteps:
    """Steps whose rows are read together, so that each file is read once."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.rows = 0
        self._of_file: dict[str, list[DatedSelection]] = {}

    def add(self, step: Step, selections: Iterable[DatedSelection]) -> None:
        self.steps.append(step)
        for dated_selection in selections:
            self.rows += dated_selection.selection.rows
            self._of_file.setdefault(dated_selection.selection.file.path, []).append(dated_selection)

    def read(self, reader: FileRows, reading: DiffReading) -> pa.Table:
        """Read the diffs of the steps, without consolidating them."""
        files = [(best_known(selections), selections) for selections in self._of_file.values()]
        reads = [reading.workers.submit(_read_all, reader, task) for task in _tasks(files, reading.far)]
        return reader.shaped(chain.from_iterable(future.result() for future in reads))


def _tasks(files: Sequence[_FileSelections], far: bool) -> list[Sequence[_FileSelections]]:
    """Split files into tasks for the workers.

    If storage is fast, one worker reads all small files: in parallel, threads would only wait for Python's lock.
    """
    small = [file for file in files if not far and 0 < file[0].size_bytes <= _SMALL_BYTES]
    return [small, *([file] for file in files if far or not 0 < file[0].size_bytes <= _SMALL_BYTES)]


def _read_all(reader: FileRows, files: Iterable[_FileSelections]) -> list[FoundRows]:
    return [reader.read(*file) for file in files]
