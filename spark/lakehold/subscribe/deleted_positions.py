"""Positions of deleted rows in data files, from deletion vectors (Iceberg format 3) and position deletes (format 2).

`changed_rows` compares them between two snapshots to find the rows that a commit deleted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from functools import cache, partial
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputStream
from pyiceberg.manifest import FileFormat
from pyroaring import BitMap64

from lakehold.subscribe.fetching import opened
from lakehold.subscribe.live_files import LiveFile
from lakehold.subscribe.remembered import Remembered

VECTORS_REMEMBERED = 4_000
"""Delete files whose positions are cached: a snapshot usually replaces the vector that its predecessor wrote."""

_FRAME_BYTES = 4
_HEADER_BYTES = 8

Positions = Mapping[str, BitMap64]
"""Positions of rows by the path of their data file."""

Opened = Callable[[str], InputStream | pa.BufferReader]
"""Opens the file at a path."""


class FilesUnreadable(Exception):
    """These files cannot be read one by one here; Spark has to read the table."""


class DeletedPositions:
    """A reader of delete files.

    Args:
        io: Opens files.
        remembered: Cached positions by the delete file's `place`: its path and, of a deletion vector, its offset there.
    """

    def __init__(self, io: FileIO, remembered: Remembered[tuple[str, int | None], Positions]) -> None:
        self._io = io
        self._remembered = remembered

    def of(self, deletes: Iterable[LiveFile]) -> dict[str, BitMap64]:
        """Return the union of the positions that `deletes` hide, by data file."""
        together: dict[str, BitMap64] = {}
        for in_file in _by_file(deletes):
            for path, positions in self._in_file(in_file):
                together[path] = together[path] | positions if path in together else positions
        return together

    def read_ahead(self, deletes: Iterable[LiveFile], threads: Executor) -> None:
        """Read files side by side, so that `of` finds their positions in the cache; skip those that only Spark can read."""
        deque(threads.map(self._read, _by_file(deletes)), maxlen=0)

    def _read(self, in_file: Sequence[LiveFile]) -> None:
        with suppress(FilesUnreadable):
            deque(self._in_file(in_file), maxlen=0)

    def _in_file(self, deletes: Iterable[LiveFile]) -> Iterator[tuple[str, BitMap64]]:
        """Read the deletes in one file, which is opened only if some of them are not cached.

        A commit writes all its deletion vectors into one file.
        """
        with ExitStack() as closing:
            once = cache(lambda path: closing.enter_context(opened(self._io, path)))
            for file in deletes:
                read = _vector if file.format == FileFormat.PUFFIN else _position_deletes
                yield from self._remembered.of(file.place, partial(read, file, once)).items()


def _by_file(deletes: Iterable[LiveFile]) -> list[list[LiveFile]]:
    """Group deletes by the file that they are in."""
    return [list(in_file) for _, in_file in groupby(sorted(deletes, key=_path), _path)]


def _path(file: LiveFile) -> str:
    return file.path


def _vector(file: LiveFile, once: Opened) -> Positions:
    """Decode a `deletion-vector-v1` blob: length (big-endian), magic, 64-bit Roaring bitmap, checksum (Puffin spec)."""
    if file.referenced is None or file.offset is None or file.length_bytes is None:
        raise FilesUnreadable(f"deletion vector without a place in {file.path}")
    stream = once(file.path)
    stream.seek(file.offset)
    blob = stream.read(file.length_bytes)
    length = int.from_bytes(blob[:_FRAME_BYTES], "big")
    return {file.referenced: BitMap64.deserialize(blob[_HEADER_BYTES : _FRAME_BYTES + length])}


def _position_deletes(file: LiveFile, once: Opened) -> Positions:
    if file.format != FileFormat.PARQUET or file.encrypted:
        raise FilesUnreadable(f"position deletes as {file.format.value} in {file.path}")
    rows = pq.read_table(once(file.path), columns=["file_path", "pos"])
    paths = pc.unique(rows.column("file_path"))
    return {path.as_py(): _bitmap(rows, path) for path in paths}


def _bitmap(rows: pa.Table, path: pa.Scalar) -> BitMap64:
    return BitMap64(rows.filter(pc.equal(rows.column("file_path"), path)).column("pos").to_pylist())
