"""The directory in which servers keep their data, logs and process records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

_OF_ROOT = Path("/var/lib/lakehold")


def default_directory(name: str, variable: str) -> Path:
    """Return the directory of the servers called `name`: the value of `variable`, by default `~/.local/state/lakehold/<name>`.

    For root it is `/var/lib/lakehold/<name>`: PostgreSQL then runs as another user, who cannot enter root's home.
    """
    configured = os.environ.get(variable)
    if configured:
        return Path(configured)
    base = _OF_ROOT if os.geteuid() == 0 else Path.home() / ".local" / "state" / "lakehold"
    return base / name


def make_directory(directory: Path) -> None:
    """Create the directory, with the folders of logs and process records."""
    for folder in (directory, directory / "logs", directory / "run"):
        folder.mkdir(parents=True, exist_ok=True)


def log_file(directory: Path, name: str) -> Path:
    """Return the log of the server called `name`."""
    return directory / "logs" / f"{name}.log"


def pid_file(directory: Path, name: str) -> Path:
    """Return the record of the process of the server called `name`; the server's stop removes the file."""
    return directory / "run" / f"{name}.json"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other commands from starting or stopping the directory's servers meanwhile; they wait."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as handle:
        flock(handle, LOCK_EX)
        yield
