"""The HTML pages of checks, one for each verdict: `verdict_page` writes them, and only maintenance deletes them, here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakehold.iceberg.deletion import Refusal, delete
from lakehold.templates import shown_path


@dataclass(frozen=True)
class Pages:
    """The pages below a directory.

    Args:
        directory: Its URI.
        io: The connection to the object store, if the directory is in one.
    """

    directory: str
    io: FileIO

    def unneeded(self, before_ms: int, linked: Collection[str]) -> list[str]:
        """List the pages that were written before a time (exclusive) and that no verdict links, by their path in the store.

        Args:
            before_ms: Epoch milliseconds.
            linked: Paths of pages that stay, as verdicts have them.
        """
        files, path = self._files()
        shown = shown_path(self.directory)
        return [
            found.path
            for found in files.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
            if _is_old(found, before_ms) and shown + found.path.removeprefix(path) not in linked
        ]

    def delete(self, pages: Sequence[str]) -> Refusal:
        """Delete pages, and return those that the store refuses to delete.

        Args:
            pages: Their paths in the store.
        """
        files, _ = self._files()
        return delete(files.delete_file, pages)

    def _files(self) -> tuple[FileSystem, str]:
        """Return the file system of the directory, and its path there."""
        io = self.io if isinstance(self.io, PyArrowFileIO) else PyArrowFileIO(self.io.properties)
        scheme, netloc, path = io.parse_location(self.directory)
        return io.fs_by_scheme(scheme, netloc), path


def _is_old(found: FileInfo, before_ms: int) -> bool:
    is_page = found.type is FileType.File and found.extension == "html"
    return is_page and found.mtime_ns is not None and found.mtime_ns < before_ms * 1_000_000
