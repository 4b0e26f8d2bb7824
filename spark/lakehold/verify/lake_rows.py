"""Digests of the rows of a table's snapshot for `lakehold verify`, read from its files in this process.

Digests are 64-bit numbers for rows and keys. A *bucket* is all keys whose digests begin with the same 16 bits (`digest.py`).
The rows of the database pass this process, too, and more slowly. So executors would save nothing: to hand a row from Spark
to Python takes five times as long as to read and digest it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event, Lock
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.errors import NotReadable
from lakehold.iceberg.attempts import unreadable
from lakehold.progress import Task
from lakehold.spark_sql import quoted
from lakehold.subscribe.changed_rows import ChangedRows, RowSelection
from lakehold.subscribe.deleted_positions import VECTORS_REMEMBERED, DeletedPositions, FilesUnreadable
from lakehold.subscribe.file_rows import file_rows
from lakehold.subscribe.live_files import LiveFiles, RememberedFiles
from lakehold.subscribe.remembered import Remembered
from lakehold.verify.digest import BucketSums, Numbers, column_digests, row_digests
from lakehold.verify.frame_rows import FrameRows, numbered
from lakehold.verify.selected_rows import FirstKey, Selection, key_texts

_FILES_AT_ONCE = 4
"""Files that are read side by side, so that a store that answers after 20 ms does not slow the read."""
_TRAILING_ZEROS = "^(-?[0-9]+)[.]0*$|^(-?[0-9]+[.][0-9]*[1-9])0+$"

_Read = TypeVar("_Read")


@dataclass(frozen=True)
class LakeRows:
    """The digests of a table's rows in one snapshot.

    Args:
        table: The table, with the snapshot.
        snapshot_id: The snapshot; None: the table has no rows.
        columns: The compared columns, the key's first. Those that the table does not have are null in each row.
        key: How many columns the key has, at least one: all of them in a table without a key.
        frame: Returns the rows of a snapshot, read by Spark: for single keys, and for files that only Spark can read.
        go_on: Called now and then, by several threads; what it raises ends the read.
        one_zero: Whether -0.0 and 0.0 are the same value, as for tables that follow diffs.
        trimmed: Columns with texts of numbers, whose trailing zeros do not count.
    """

    table: Table
    snapshot_id: int | None
    columns: tuple[str, ...]
    key: int
    frame: Callable[[int], DataFrame]
    go_on: Callable[[], object] = lambda: None
    one_zero: bool = False
    trimmed: frozenset[str] = frozenset()

    def sums(self, task: Task) -> BucketSums:
        """Digest all rows; return the sums of digests by the bucket of their key."""
        counting = Lock()

        def of_file(batches: Iterator[pa.RecordBatch]) -> BucketSums:
            sums = BucketSums()
            for batch in batches:
                digests = self._digests(batch)
                sums.add(row_digests(digests[: self.key]), row_digests(digests))
                with counting:
                    task.advance(batch.num_rows)
            return sums

        total = BucketSums()
        try:
            for sums in self._of_files(of_file):
                total.add_batch(sums.to_batch())
        except FilesUnreadable:
            return self._by_spark().sums(task)
        return total

    def selected(self, selection: Selection, first_key: FirstKey | None = None) -> list[pa.RecordBatch]:
        """Return the digests of single rows, of those buckets or keys that `selection` names.

        Args:
            selection: The rows.
            first_key: Values of the first key column that the rows have: Spark skips files whose statistics exclude these values.
        """
        if self.snapshot_id is not None and first_key is not None:
            return self._by_spark(first_key).selected(selection)

        def of_file(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
            return [selection.rows(self._digests(batch), key_texts(batch.columns[: self.key])) for batch in batches]

        try:
            return [batch for found in self._of_files(of_file) for batch in found]
        except FilesUnreadable:
            return self._by_spark().selected(selection)

    def _of_files(self, read: Callable[[Iterator[pa.RecordBatch]], _Read]) -> Iterator[_Read]:
        """Yield what `read` returns for the rows of each file.

        Raises:
            FilesUnreadable: Only Spark can read the snapshot.
            DefinitionError: A file of the table is missing or cannot be read.
            UpstreamUnavailable: The object store does not work.
        """
        fields = {field.name: field for field in self.table.schema().fields}
        present = [name for name in self.columns if name in fields]
        rows = file_rows(self.table, Schema(*(fields[name] for name in present)))

        ended = Event()

        def read_file(selection: RowSelection) -> _Read:
            batches = self._until(ended, rows.batches(selection))
            return read(self._compared(batch, present) for batch in batches)

        threads = ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="lakehold-verify")
        try:
            yield from threads.map(read_file, self.files())
        except OSError as error:
            raise unreadable(".".join(self.table.name()), error) from error
        finally:
            ended.set()
            threads.shutdown(wait=False, cancel_futures=True)

    def files(self) -> list[RowSelection]:
        """Return the files of the snapshot, with the positions of deleted rows.

        Raises:
            FilesUnreadable: Only Spark can read the snapshot.
            NotReadable: Another program has expired it.
        """
        if self.snapshot_id is not None and self.table.snapshot_by_id(self.snapshot_id) is None:
            raise NotReadable(
                f'snapshot {self.snapshot_id} of "{".".join(self.table.name())}" was expired before it was read',
                detail="lakehold keeps what a comparison reads, so another program expired it.",
                hint="Compare again.",
            )
        deleted = DeletedPositions(self.table.io, Remembered(VECTORS_REMEMBERED))
        return ChangedRows(LiveFiles(self.table, RememberedFiles()), deleted).between(None, self.snapshot_id)

    def _digests(self, batch: pa.RecordBatch) -> list[Numbers]:
        return [column_digests(column, one_zero=self.one_zero) for column in batch.columns]

    def _until(self, ended: Event, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.go_on()
            if ended.is_set():
                return
            yield batch

    def _compared(self, batch: pa.RecordBatch, present: Sequence[str]) -> pa.RecordBatch:
        """Add the columns that are missing, and trim texts of numbers."""
        if len(present) == len(self.columns) and not self.trimmed:
            return batch
        found, null = dict(zip(present, batch.columns, strict=True)), pa.nulls(batch.num_rows, pa.int32())
        for name in self.trimmed.intersection(present):
            found[name] = pc.replace_substring_regex(found[name], _TRAILING_ZEROS, r"\1\2")
        return pa.RecordBatch.from_arrays([found.get(name, null) for name in self.columns], names=[*self.columns])

    def _by_spark(self, first_key: FirstKey | None = None) -> FrameRows:
        assert self.snapshot_id is not None
        frame = self.frame(self.snapshot_id)
        if first_key is not None:
            is_whole = first_key.type == "bigint"
            wanted = [int(text) if is_whole else text for text in first_key.values]
            frame = frame.where(F.col(quoted(self.columns[0])).isin(wanted))
        for name in self.trimmed.intersection(frame.columns):
            frame = frame.withColumn(name, F.regexp_replace(quoted(name), _TRAILING_ZEROS, "$1$2"))
        return FrameRows(numbered(frame, self.columns), self.key, self.one_zero)
