"""Names of files and folders that belong to one table: contracts, suites and pages of checks."""

from __future__ import annotations

import hashlib
import re

_LONGEST = 240
"""In bytes; file systems take 255, of which the suffix needs some."""

_UNFIT = re.compile(r"[/\\?#\0]")
"""Characters that end a name in a path or a URI."""


def file_name_of(full_name: str) -> str:
    """Return the name for files of a table: its own, or a part of it with a digest where no file can have its name."""
    if len(full_name.encode()) <= _LONGEST and not _UNFIT.search(full_name):
        return full_name
    digest = hashlib.sha256(full_name.encode()).hexdigest()[:16]
    return f"{_UNFIT.sub('_', full_name)[:50]}-{digest}"
