"""The HTML pages of checks, one for each verdict: `verdict_page` writes them, and only maintenance deletes them, here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

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

    def forget(self, before_ms: int, linked: Collection[str], *, dry_run: bool = False) -> int:
        """Delete pages that were written before a time (exclusive) and that no verdict links; return how many.

        Args:
            before_ms: Epoch milliseconds.
            linked: Paths of pages that stay, as verdicts have them.
            dry_run: Only count them.
        """
        files, path = self._files()
        parts = urlsplit(self.directory)
        prefix = f"{parts.scheme}://" if parts.netloc else ""
        gone = [
            found.path
            for found in files.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
            if _is_old(found, before_ms) and (shown_path(prefix + found.path)) not in linked
        ]
        for page in gone if not dry_run else ():
            files.delete_file(page)
        return len(gone)

    def _files(self) -> tuple[FileSystem, str]:
        """Return the file system of the directory, and its path there."""
        scheme, netloc, path = PyArrowFileIO.parse_location(self.directory)
        io = self.io if isinstance(self.io, PyArrowFileIO) else PyArrowFileIO(self.io.properties)
        return io.fs_by_scheme(scheme, netloc), path


def _is_old(found: FileInfo, before_ms: int) -> bool:
    is_page = found.type is FileType.File and found.extension == "html"
    return is_page and found.mtime_ns is not None and found.mtime_ns < before_ms * 1_000_000
