"""Files that are read whole, into memory that belongs to Arrow.

Arrow's threads may let go of what they have read after the read has ended. Memory of a Python object needs Python for that, so
a process that ends at that moment would be aborted (SIGABRT) instead of returning its exit code.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.io import InputStream


def read_whole(stream: InputStream) -> pa.BufferReader:
    """Read an open file to its end; the caller closes it."""
    return pa.BufferReader(in_arrow_memory(stream.read()))


def in_arrow_memory(content: bytes | bytearray) -> pa.Buffer:
    """Copy bytes to memory of which no Python object is the owner."""
    copied = pa.allocate_buffer(len(content))
    pa.FixedSizeBufferWriter(copied).write(content)
    return copied
