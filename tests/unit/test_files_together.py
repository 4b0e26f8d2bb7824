"""New files of a commit are kept in memory until they are written side by side."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from lakehold.iceberg.files_together import FilesTogether

AT_ONCE = 3
WITHIN_S = 10.0


class MeetingIO(PyArrowFileIO):
    """A `FileIO` that writes no file before it has been given three."""

    def __init__(self) -> None:
        super().__init__()
        self._all_given = threading.Barrier(AT_ONCE)

    def new_output(self, location: str) -> PyArrowFile:
        self._all_given.wait(WITHIN_S)
        return super().new_output(location)


def fill(io: FileIO, directory: Path) -> list[int]:
    """Create files, and return their lengths."""
    files = [io.new_output(str(directory / f"file{number}")) for number in range(AT_ONCE)]
    for number, file in enumerate(files):
        with file.create() as stream:
            stream.write(b"x" * number)
    return [len(file) for file in files]


def test_files_have_a_length_before_they_are_written(tmp_path: Path) -> None:
    together = FilesTogether(load_file_io({}))
    assert fill(together, tmp_path) == [0, 1, 2]
    assert list(tmp_path.iterdir()) == []
    together.write()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "file0": b"",
        "file1": b"x",
        "file2": b"xx",
    }


def test_files_are_written_side_by_side(tmp_path: Path) -> None:
    together = FilesTogether(MeetingIO())
    fill(together, tmp_path)
    together.write()
    assert len(list(tmp_path.iterdir())) == AT_ONCE


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    together = FilesTogether(load_file_io({}))
    (tmp_path / "file1").mkdir()
    fill(together, tmp_path)
    with pytest.raises(OSError, match="file1"):
        together.write()
