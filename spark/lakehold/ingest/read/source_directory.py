"""The directory of a FILES source: its files, where their lines begin, and the digests that show that one was replaced."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lakehold.errors import UpstreamError, UpstreamUnavailable

_IDENTITY_BYTES = 1 << 12


def directory_of(path: str) -> Path:
    """Return the directory that a path or a `file:` URI names.

    Raises:
        UpstreamError: It is a URI of another kind.
    """
    try:
        parts = urlsplit(path)
    except ValueError:  # A bracket in it begins no address of a host.
        raise _elsewhere(path) from None
    if not parts.scheme:
        return Path(path)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise _elsewhere(path)
    return Path(unquote(parts.path))


def _elsewhere(path: str) -> UpstreamError:
    return UpstreamError(
        f'"{path}" is not a directory on this machine',
        code="directory-missing",
        detail="A FILES source reads a path or a file: URI.",
        hint="Copy the files to a directory, or read them from Kafka.",
    )


def recorded_files(directory: Path) -> dict[str, Path]:
    """Return the `*.jsonl` files in and below `directory`, by relative path in order.

    Raises:
        UpstreamError: The directory does not exist.
        UpstreamUnavailable: It cannot be read, or a path in it is not UTF-8: positions and error records are text.
    """
    with reading(directory):
        if not directory.is_dir():
            raise UpstreamError(
                f'directory "{directory}" does not exist',
                code="directory-missing",
                detail="It exists, but it is not a directory." if directory.exists() else "",
                hint="Create it, or let a link of this name lead to the directory. It may be empty.",
            )
        paths = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*.jsonl") if path.is_file()}
    for path in paths.values():
        if (content := os.fsencode(path)) != str(path).encode(errors="replace"):
            shown = content.decode(errors="backslashreplace")
            raise UpstreamUnavailable(
                f'"{shown}" cannot be read',
                detail="Its path is not UTF-8.",
                hint="Rename the file or its directory.",
            )
    return {name: paths[name] for name in sorted(paths)}


def identity_of(path: Path) -> str:
    """Return the digest of a file's first line (of 4096 bytes at most), which distinguishes it from a later file of its name."""
    with reading(path), path.open("rb") as content:
        return hashlib.sha256(content.readline(_IDENTITY_BYTES)).hexdigest()[:16]


def begins_line(path: Path, position: int) -> bool:
    """Return whether a line begins at a byte position."""
    if position == 0:
        return True
    with reading(path), path.open("rb") as content:
        content.seek(position - 1)
        return content.read(1) == b"\n"


def line_number(path: Path, position: int) -> int:
    """Return the one-based number of the line that begins at `position`; reads the file up to there."""
    newlines, left = 0, position
    with reading(path), path.open("rb") as content:
        while left > 0 and (block := content.read(min(left, 1 << 22))):
            newlines += block.count(b"\n")
            left -= len(block)
    return newlines + 1


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Translate errors of the operating system inside into `UpstreamUnavailable`, an error for people; `path` is read inside."""
    try:
        yield
    except OSError as error:
        raise UpstreamUnavailable(
            f'"{path}" cannot be read',
            detail=f"{error.strerror or error}: {error.filename or path}.",
            hint="Give the user that runs lakehold the right to read the directory and its files.",
        ) from error
