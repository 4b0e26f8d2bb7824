"""Files that are read whole belong to Arrow: its threads may let go of them while Python ends."""

from __future__ import annotations

import sys
from typing import cast

import pytest
from pyiceberg.io import InputStream

from lakehold.iceberg.whole_files import read_whole


class Opened:
    """A file whose content Python owns, as a file system written in Python has it."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self) -> bytes:
        return self.content


@pytest.mark.parametrize("content", [b"PAR1 and more", b""])
def test_a_file_read_whole_keeps_no_object_of_python(content: bytes) -> None:
    file = Opened(content)
    before = sys.getrefcount(content)
    reader = read_whole(cast("InputStream", file))
    assert sys.getrefcount(content) == before
    assert reader.read() == content
