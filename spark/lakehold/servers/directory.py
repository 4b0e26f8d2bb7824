"""The directory that servers keep their data, logs and process records in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path


def make_directory(directory: Path) -> None:
    """Make it, with the folders of logs and process records."""
    for folder in (directory, directory / "logs", directory / "run"):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other commands from starting or stopping its servers meanwhile; they wait."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as handle:
        flock(handle, LOCK_EX)
        yield
