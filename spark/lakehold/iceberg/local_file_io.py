"""Opens files on this machine. PyIceberg's own `PyArrowFileIO` imports pandas, which takes as long as reading a lake's state."""

from __future__ import annotations

import os
from contextlib import suppress
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream


class LocalFile(InputFile, OutputFile):
    """A file on this machine.

    Args:
        location: Its location, as Iceberg's metadata have it.
        path: Its path.
    """

    def __init__(self, location: str, path: str) -> None:
        super().__init__(location)
        self._path = path

    def __len__(self) -> int:
        return os.path.getsize(self._path)

    def exists(self) -> bool:
        """Return whether the file exists."""
        return os.path.exists(self._path)

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - the signature is PyIceberg's
        """Read the file; several threads may."""
        opened: InputStream = pa.OSFile(self._path, "rb")
        return opened

    def create(self, overwrite: bool = False) -> OutputStream:
        """Write the file, and make its directory.

        Raises:
            FileExistsError: The file exists, and is not to be overwritten.
        """
        if not overwrite and self.exists():
            raise FileExistsError(f"Cannot create file, already exists: {self.location}")
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        opened: OutputStream = pa.OSFile(self._path, "wb")
        return opened

    def to_input_file(self) -> LocalFile:
        """Return the file to read it."""
        return self


class LocalFileIO(FileIO):
    """A `FileIO` for a warehouse on this machine; files that tables have elsewhere are opened as in an object store."""

    def new_input(self, location: str) -> InputFile:
        """Return a file to read."""
        path = _path_of(location)
        return LocalFile(location, path) if path is not None else self._elsewhere().new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Return a new file."""
        path = _path_of(location)
        return LocalFile(location, path) if path is not None else self._elsewhere().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        name = location if isinstance(location, str) else location.location
        path = _path_of(name)
        if path is None:
            self._elsewhere().delete(name)
        else:
            os.remove(path)
            # Spark writes a checksum beside each file.
            with suppress(FileNotFoundError):
                os.remove(_checksum_of(path))

    def _elsewhere(self) -> FileIO:
        from lakehold.iceberg.store_file_io import StoreFileIO  # noqa: PLC0415 - it imports pandas

        return StoreFileIO(self.properties)


def _checksum_of(path: str) -> str:
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.crc")


def _path_of(location: str) -> str | None:
    """Return the path of a file on this machine; None if the file is elsewhere."""
    parts = urlsplit(location)
    if not parts.scheme:
        return os.path.abspath(location)
    return parts.netloc + parts.path if parts.scheme == "file" else None
