"""Opens files for reading in parts. Small files are fetched whole, because each read of an object store is a request."""

from __future__ import annotations

import os

import pyarrow as pa
from pyiceberg.io import FileIO, InputStream

from lakehold.iceberg.whole_files import read_whole

_FETCHED_WHOLE_BYTES = 1 << 20
"""Largest file that is fetched whole."""


def opened(io: FileIO, path: str) -> InputStream | pa.BufferReader:
    """Open the file at `path`; the caller closes it."""
    stream = io.new_input(path).open()
    # An open file of an object store knows its size: Arrow has asked for it.
    if stream.seek(0, os.SEEK_END) > _FETCHED_WHOLE_BYTES:
        stream.seek(0)
        return stream
    stream.seek(0)
    with stream:
        return read_whole(stream)
