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

    def unneeded(self, before_ms: int, named: Collection[str]) -> list[str]:
        """List those of some pages that were written before a time (exclusive), by their path in the store.

        Other files are not the lake's: other lakes, or a web server, may have theirs in the same directory.

        Args:
            before_ms: Epoch milliseconds.
            named: Paths of pages that nothing needs, as verdicts have them; those elsewhere than in the directory are left out.
        """
        files, path = self._files()
        shown = f"{shown_path(self.directory.rstrip('/'))}/"
        wanted = {f"{path.rstrip('/')}/{page.removeprefix(shown)}" for page in named if page.startswith(shown)}
        folders = sorted({page.rpartition("/")[0] for page in wanted})
        return [
            found.path
            for folder in folders
            for found in files.get_file_info(FileSelector(folder, allow_not_found=True))
            if found.path in wanted and _is_old(found, before_ms)
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
    return found.type is FileType.File and found.mtime_ns is not None and found.mtime_ns < before_ms * 1_000_000
