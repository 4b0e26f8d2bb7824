"""Chunks of output, counted while a merge reads them; a change of their columns ends the merge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


class ColumnsChanged(Exception):
    """A change of the columns of what is read, from a timestamp onward."""


class Counted:
    """Chunks that are counted as they are read.

    Args:
        chunks: The chunks.
        columns: The columns that they have, unless a table that is read has changed.
    """

    def __init__(self, chunks: Iterable[pa.Table], columns: pa.Schema) -> None:
        self._chunks = chunks
        self._columns = columns
        self.rows = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for chunk in self._chunks:
            if (chunk.schema.names, chunk.schema.types) != (self._columns.names, self._columns.types):
                raise ColumnsChanged
            self.rows += chunk.num_rows
            yield chunk
