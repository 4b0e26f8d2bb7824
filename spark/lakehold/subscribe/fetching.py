"""Files as they are opened to be read in parts: small ones are fetched at once, each read of an object store is a request."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.io import FileIO, InputStream

_FETCHED_WHOLE_BYTES = 1 << 20
"""Up to which size a file is fetched at once."""


def opened(io: FileIO, path: str, size_bytes: int) -> InputStream | pa.BufferReader:
    """The file at `path`, to be closed."""
    stream = io.new_input(path).open()
    if size_bytes > _FETCHED_WHOLE_BYTES:
        return stream
    with stream:
        return pa.BufferReader(stream.read())
