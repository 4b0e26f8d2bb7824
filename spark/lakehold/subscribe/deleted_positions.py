"""Which rows of a data file its deletes hide, as positions: from deletion vectors (v3) and position deletes (v2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
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
"""Delete files whose positions are kept: the vector that a snapshot replaces is the one that its predecessor wrote."""

_FRAME_BYTES = 4
_HEADER_BYTES = 8

Positions = Mapping[str, BitMap64]
"""Positions of rows by the path of their data file."""

Opened = Callable[[str, int], InputStream | pa.BufferReader]
"""The file at a path, of a size in bytes."""


class FilesUnreadable(Exception):
    """These files cannot be read one by one: the table has to be read by Spark, which knows how."""


class DeletedPositions:
    """Reads delete files.

    Args:
        io: Opens files.
        remembered: Positions by the place of the delete file.
    """

    def __init__(self, io: FileIO, remembered: Remembered[tuple[str, int | None], Positions]) -> None:
        self._io = io
        self._remembered = remembered

    def of(self, deletes: Iterable[LiveFile]) -> dict[str, BitMap64]:
        """The positions that `deletes` hide together."""
        together: dict[str, BitMap64] = {}
        for _, in_file in groupby(sorted(deletes, key=_path), _path):
            for path, positions in self._in_file(in_file):
                together[path] = together[path] | positions if path in together else positions
        return together

    def _in_file(self, deletes: Iterable[LiveFile]) -> Iterator[tuple[str, BitMap64]]:
        """What is in one file, opened once if something of it is not known: a commit writes its deletion vectors into one."""
        with ExitStack() as closing:
            once = cache(lambda path, size_bytes: closing.enter_context(opened(self._io, path, size_bytes)))
            for file in deletes:
                read = _vector if file.format == FileFormat.PUFFIN else _position_deletes
                yield from self._remembered.of(file.place, partial(read, file, once)).items()


def _path(file: LiveFile) -> str:
    return file.path


def _vector(file: LiveFile, once: Opened) -> Positions:
    """A `deletion-vector-v1` blob: length (big-endian), magic, a 64-bit Roaring bitmap, checksum (Puffin spec)."""
    if file.referenced is None or file.offset is None or file.length_bytes is None:
        raise FilesUnreadable(f"deletion vector without a place in {file.path}")
    stream = once(file.path, file.size_bytes)
    stream.seek(file.offset)
    blob = stream.read(file.length_bytes)
    length = int.from_bytes(blob[:_FRAME_BYTES], "big")
    return {file.referenced: BitMap64.deserialize(blob[_HEADER_BYTES : _FRAME_BYTES + length])}


def _position_deletes(file: LiveFile, once: Opened) -> Positions:
    if file.format != FileFormat.PARQUET or file.encrypted:
        raise FilesUnreadable(f"position deletes as {file.format.value} in {file.path}")
    rows = pq.read_table(once(file.path, file.size_bytes), columns=["file_path", "pos"])
    paths = pc.unique(rows.column("file_path"))
    return {path.as_py(): _bitmap(rows, path) for path in paths}


def _bitmap(rows: pa.Table, path: pa.Scalar) -> BitMap64:
    return BitMap64(rows.filter(pc.equal(rows.column("file_path"), path)).column("pos").to_pylist())
