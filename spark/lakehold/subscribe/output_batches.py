"""Batches of a SUBSCRIBE's output as `lake.follow` yields them: one per timestamp, with rows that can be read as a stream.

They are not the batches of an ingest: a table's timestamp may come from a batch of its source or from a foreign commit.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

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


class Batch:
    """The complete rows of one timestamp; with PROGRESS also the progress rows around them.

    Iterating streams the rows, so a first snapshot of any size can be read; `rows` keeps all of them in memory.

    Attributes:
        timestamp: Epoch milliseconds.
        columns: Names of the columns.
    """

    def __init__(self, timestamp: int, columns: tuple[str, ...], tables: Iterator[pa.Table]) -> None:
        self.timestamp = timestamp
        self.columns = columns
        self._unread = tables
        self._kept: list[pa.Table] | None = None

    def tables(self) -> Iterator[pa.Table]:
        """Return the rows as Arrow tables. They can be read once, unless the batch has been kept."""
        return iter(self._kept) if self._kept is not None else self._unread

    def __iter__(self) -> Iterator[Row]:
        for table in self.tables():
            yield from tuples(table)

    @cached_property
    def rows(self) -> list[Row]:
        """Return all rows, and keep them."""
        self.keep()
        return list(self)

    def keep(self) -> None:
        """Keep the rows that have not been read yet, because the next batch is about to be read."""
        if self._kept is None:
            self._kept = list(self._unread)


def batches(chunks: Iterable[OutputChunk | Complete], columns: tuple[str, ...]) -> Iterator[Batch]:
    """Group chunks, which come with ascending timestamps, into batches.

    `Complete` ends a batch without waiting for the next chunk. A batch that its reader has dropped is not kept in memory when the
    next batch is requested.
    """
    reader = _ChunkReader(iter(chunks))
    while reader.skip_ends():
        tables = reader.read_timestamp()
        batch = Batch(reader.timestamp, columns, tables)
        held = weakref.ref(batch)
        yield batch
        del batch
        kept = held()
        if kept is not None:
            kept.keep()
            del kept
        for _ in tables:
            pass


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
