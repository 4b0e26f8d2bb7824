"""Batches of a SUBSCRIBE's output as `lake.follow` yields them: one per timestamp, with rows that can be read as a stream.

They are not the batches of an ingest: a table's timestamp may come from a batch of its source or from a foreign commit.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import pyarrow as pa

from lakehold.errors import DefinitionError
from lakehold.spark_errors import readable
from lakehold.subscribe.row_values import tuples

Row = tuple[Any, ...]


@dataclass(frozen=True)
class OutputChunk:
    """Some or all rows of the output that belong to the batch of `mz_timestamp`; large batches have several chunks."""

    mz_timestamp: int
    rows: pa.Table


@dataclass(frozen=True)
class Complete:
    """A mark in the output: all rows below `until_ms` (exclusive) have come."""

    until_ms: int


class Unread(Iterator[pa.Table]):
    """The tables of a timestamp that are not read yet. If reading them fails, it fails again: a failed output never seems to end.

    Args:
        tables: Reads the tables.
    """

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._failure: BaseException | None = None

    def __next__(self) -> pa.Table:
        """Read the next table."""
        if self._failure is not None:
            raise self._failure
        try:
            # The reader takes rows outside of the context in which the output was opened.
            with readable():
                return next(self._tables)
        except StopIteration:
            raise
        except BaseException as failure:
            self._failure = failure
            raise


class StreamedTables:
    """The rows of one timestamp as Arrow tables: streamed from the output, once. It loses no row in silence.

    The reader of the output calls `keep` or `skip` before the next timestamp; another thread may iterate meanwhile.

    Args:
        unread: The tables, which the output reads as they are taken.
    """

    def __init__(self, unread: Unread) -> None:
        self._unread: Iterator[pa.Table] = unread
        self._lock = Lock()
        self._is_begun = False
        self._kept: list[pa.Table] | None = None
        self._skipped_rows = 0

    def __iter__(self) -> Iterator[pa.Table]:
        """Iterate over the tables: once, or often if all are kept.

        Raises:
            DefinitionError: They have been iterated over, or were skipped.
        """
        if self._kept is not None:
            return iter(self._kept)
        if self._is_begun:
            raise DefinitionError(
                "these rows were read before",
                code="rows-read",
                detail="The rows of a timestamp are streamed, once, so that a snapshot may have any size.",
                hint="Keep them in a list if you need them twice; batch.rows does so for a batch that nothing has read yet.",
            )
        self._is_begun = True
        return iter(self._take, None)

    def keep(self) -> None:
        """Read what is unread into memory, for those who iterate later."""
        with self._lock:
            if self._kept is None:
                rest = list(self._unread)
                self._unread = iter(rest)
                self._kept = None if self._is_begun else rest

    def skip(self) -> None:
        """Drop what is unread; taking it later is an error."""
        with self._lock:
            self._skipped_rows = sum(table.num_rows for table in self._unread)

    def _take(self) -> pa.Table | None:
        with self._lock:
            if self._skipped_rows:
                raise DefinitionError(
                    "these rows were acknowledged before they were read",
                    code="delivery-passed",
                    detail=f"{self._skipped_rows:,} of them are not kept, as acknowledged rows are never delivered again.",
                    hint="Read all rows before you acknowledge them. A callback that returns acknowledges its rows.",
                )
            return next(self._unread, None)


def leave(given: weakref.ref[StreamedTables], unread: Unread, *, keeps: bool = True) -> None:
    """Bring the output behind the rows of a timestamp that was given to a reader; those are kept only if somebody has them."""
    if (tables := given()) is not None:
        if keeps:
            tables.keep()
        else:
            tables.skip()
    for _ in unread:
        pass


class Batch:
    """The complete rows of one timestamp; with PROGRESS also the progress rows around them.

    Iterating streams the rows, so a first snapshot of any size can be read; `rows` keeps all of them in memory.

    Attributes:
        timestamp: Epoch milliseconds.
        columns: Names of the columns.
    """

    def __init__(self, timestamp: int, columns: tuple[str, ...], tables: StreamedTables) -> None:
        self.timestamp = timestamp
        self.columns = columns
        self._tables = tables

    def tables(self) -> Iterator[pa.Table]:
        """Return the rows as Arrow tables. They can be read once, unless the batch has been kept."""
        return iter(self._tables)

    def __iter__(self) -> Iterator[Row]:
        for table in self.tables():
            yield from tuples(table)

    @cached_property
    def rows(self) -> list[Row]:
        """Return all rows, and keep them."""
        self.keep()
        return list(self)

    def keep(self) -> None:
        """Keep the rows that have not been read yet in memory."""
        self._tables.keep()


def batches(chunks: Iterable[OutputChunk | Complete], columns: tuple[str, ...]) -> Iterator[Batch]:
    """Group chunks, which come with ascending timestamps, into batches.

    `Complete` ends a batch without waiting for the next chunk. When the next batch is requested, unread rows are kept in memory,
    unless the reader has dropped them.
    """
    reader = _ChunkReader(iter(chunks))
    while reader.skip_ends():
        unread = Unread(reader.read_timestamp())
        tables = StreamedTables(unread)
        given = weakref.ref(tables)
        batch = Batch(reader.timestamp, columns, tables)
        del tables
        yield batch
        del batch
        leave(given, unread)


class _ChunkReader:
    """A reader of chunks that can look one chunk ahead."""

    def __init__(self, chunks: Iterator[OutputChunk | Complete]) -> None:
        self._chunks = (chunk if isinstance(chunk, OutputChunk) else None for chunk in chunks)
        self._next: OutputChunk | None = None

    @property
    def timestamp(self) -> int:
        """Return the timestamp of the next chunk, which must exist."""
        assert self._next is not None
        return self._next.mz_timestamp

    def skip_ends(self) -> bool:
        """Advance to the next chunk; return false if no chunk is left."""
        while self._next is None:
            try:
                self._next = next(self._chunks)
            except StopIteration:
                return False
        return True

    def read_timestamp(self) -> Iterator[pa.Table]:
        """Yield the rows of the next chunks that share the current timestamp."""
        timestamp = self.timestamp
        while self._next is not None and self._next.mz_timestamp == timestamp:
            yield self._next.rows
            self._next = next(self._chunks, None)
