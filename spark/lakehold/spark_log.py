"""The log of Spark's JVM: a command sends the JVM's stderr to a file, because its own stderr is for people.

A program that calls `lakehold.connect` keeps what it has: its JVM writes to its stderr.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_KEPT_S = 7 * 24 * 60 * 60
_READ_BYTES = 1 << 16
_LAST_LINES = 12
_OF_STARTING = ("WARNING: Using incubator modules", "Picked up ")
"""Lines that every JVM of Spark writes, or that say with which options it starts."""


@dataclass
class _Log:
    """The log of this process.

    Attributes:
        directory: Returns the directory of logs; None: the JVM writes to this process's stderr.
        file: The file, once a JVM starts.
    """

    directory: Callable[[], Path] | None = None
    file: Path | None = None


_log = _Log()


def keep_apart(directory: Callable[[], Path]) -> None:
    """Send the stderr of a JVM that starts later to a file in the directory that `directory` returns; Python's stays."""
    if sys.stderr is None:  # somebody closed it: 2>&-
        return
    # The descriptor 2 is what a JVM inherits: Python writes to another one, so that both can differ.
    own = os.dup(sys.stderr.fileno())
    sys.stderr = os.fdopen(own, "w", buffering=1, encoding=sys.stderr.encoding, errors=sys.stderr.errors)
    _log.directory = directory


@contextmanager
def apart() -> Iterator[None]:
    """Have a process that starts inside write its stderr to the log, if this process keeps one."""
    opened = _opened(_log.directory()) if _log.directory is not None else None
    if opened is None:
        yield
        return
    own = os.dup(2)
    try:
        os.dup2(opened, 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(opened)


def written() -> Path | None:
    """Return the file of the log if the JVM has written more to it than how it starts."""
    return _log.file if _log.file is not None and last_lines(_log.file) else None


def last_lines(log: Path) -> list[str]:
    """Return the last few lines of a log, without stack traces and without what a JVM writes as it starts."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _READ_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip(" #") and not line.startswith(("\t", *_OF_STARTING))][-_LAST_LINES:]


def discard() -> None:
    """Remove the log of a command that succeeded."""
    if _log.file is not None:
        _log.file.unlink(missing_ok=True)


def _opened(directory: Path) -> int | None:
    """Open the log and remove logs that are older than a week; None if the directory cannot be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for other in directory.glob("spark-*.log"):
            if other.stat().st_mtime < time.time() - _KEPT_S:
                other.unlink(missing_ok=True)
        file = directory / f"spark-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.log"
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        _log.file = file
        return opened
    except OSError:
        return None
