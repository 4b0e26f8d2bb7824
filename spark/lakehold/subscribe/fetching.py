"""Opens files for reading in parts. Small files are fetched whole, because each read of an object store is a request."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.io import FileIO, InputStream

_FETCHED_WHOLE_BYTES = 1 << 20
"""Largest file that is fetched whole."""


def opened(io: FileIO, path: str, size_bytes: int) -> InputStream | pa.BufferReader:
    """Open the file at `path`; the caller closes it."""
    stream = io.new_input(path).open()
    if size_bytes > _FETCHED_WHOLE_BYTES:
        return stream
    with stream:
        return pa.BufferReader(stream.read())
