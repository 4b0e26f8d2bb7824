"""What a reader gets: one batch a timestamp, whose rows can be taken as they come, however many they are."""

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
    """Rows of the output that belong to the batch of `mz_timestamp`."""

    mz_timestamp: int
    rows: pa.Table


class Batch:
    """The rows of one timestamp, complete; with PROGRESS also the progress rows around them.

    Iterating takes rows as they are read, so a first snapshot of any size passes through; `rows` keeps them all.

    Attributes:
        timestamp: Epoch milliseconds.
        columns: The columns' names.
    """

    def __init__(self, timestamp: int, columns: tuple[str, ...], tables: Iterator[pa.Table]) -> None:
        self.timestamp = timestamp
        self.columns = columns
        self._unread = tables
        self._kept: list[pa.Table] | None = None

    def tables(self) -> Iterator[pa.Table]:
        """The rows as Arrow tables, once unless they have been kept."""
        return iter(self._kept) if self._kept is not None else self._unread

    def __iter__(self) -> Iterator[Row]:
        for table in self.tables():
            yield from tuples(table)

    @cached_property
    def rows(self) -> list[Row]:
        """All rows."""
        self.keep()
        return list(self)

    def keep(self) -> None:
        """Take what has not been read yet, as the batch behind this one is about to be."""
        if self._kept is None:
            self._kept = list(self._unread)


def batches(chunks: Iterable[OutputChunk | None], columns: tuple[str, ...]) -> Iterator[Batch]:
    """Pieces, timestamps ascending, as batches; None ends a batch without a look at what follows.

    A batch that nobody holds any more is not kept when the next one is asked for.
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
    """Pieces with a look at the next one."""

    def __init__(self, chunks: Iterator[OutputChunk | None]) -> None:
        self._chunks = chunks
        self._next: OutputChunk | None = None

    @property
    def timestamp(self) -> int:
        """The timestamp of the next piece, which must be there."""
        assert self._next is not None
        return self._next.mz_timestamp

    def skip_ends(self) -> bool:
        """Go to the next piece; false when there is none."""
        while self._next is None:
            try:
                self._next = next(self._chunks)
            except StopIteration:
                return False
        return True

    def read_timestamp(self) -> Iterator[pa.Table]:
        """The rows of the next pieces as long as they have its timestamp."""
        timestamp = self.timestamp
        while self._next is not None and self._next.mz_timestamp == timestamp:
            yield self._next.rows
            self._next = next(self._chunks, None)
