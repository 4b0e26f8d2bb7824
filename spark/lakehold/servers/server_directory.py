"""The directory in which servers keep their data, logs and process records."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

from lakehold.home import below_home
from lakehold.servers.errors import ServerError

_OF_ROOT = Path("/var/lib/lakehold")


def default_directory(name: str, variable: str) -> Path:
    """Return the directory of the servers called `name`: the value of `variable`, by default `~/.local/state/lakehold/<name>`.

    For root it is `/var/lib/lakehold/<name>`: PostgreSQL then runs as another user, who cannot enter root's home.
    """
    configured = os.environ.get(variable)
    if configured:
        return Path(configured)
    return below_home(unset_directory(name), variable)


def unset_directory(name: str) -> Path:
    """Return the directory of the servers called `name` if no variable is set; it may begin with `~`."""
    return (_OF_ROOT if os.geteuid() == 0 else Path("~/.local/state/lakehold")) / name


def make_directory(directory: Path) -> None:
    """Create the directory, with the folders of logs and process records.

    Raises:
        ServerError: It cannot be created.
    """
    try:
        for folder in (directory, directory / "logs", directory / "run"):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(directory, error) from error


def read_record(file: Path) -> Mapping[str, int]:
    """Return what `write_record` wrote; empty if it never did.

    Raises:
        ServerError: The file is damaged, or cannot be read.
    """
    try:
        record = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        record = error
    if not isinstance(record, dict):
        raise ServerError(
            f'"{file}" cannot be read',
            code="server-directory",
            detail="It should have the ports of the servers, as they were last started.",
            hint="Remove it: the next start writes it again. Name the ports then, if they are not the default ones.",
        )
    return record


def write_record(file: Path, record: Mapping[str, int]) -> None:
    """Replace the record by another one at once: a full disk leaves the former one.

    Raises:
        ServerError: It cannot be written.
    """
    partial = file.with_suffix(".partial")
    try:
        partial.write_text(json.dumps(record))
        partial.replace(file)
    except OSError as error:
        raise _unwritable(file.parent, error) from error


def _unwritable(directory: Path, error: OSError) -> ServerError:
    return ServerError(
        f'the directory "{directory}" cannot be written',
        code="server-directory",
        detail=f"{error}.",
        hint="Name another one with --directory, or make it writable.",
    )


def log_file(directory: Path, name: str) -> Path:
    """Return the log of the server called `name`."""
    return directory / "logs" / f"{name}.log"


def pid_file(directory: Path, name: str) -> Path:
    """Return the record of the process of the server called `name`; the server's stop removes the file."""
    return directory / "run" / f"{name}.json"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other commands from starting or stopping the directory's servers meanwhile; they wait."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("w")
    except OSError as error:
        raise _unwritable(directory, error) from error
    with lock as handle:
        flock(handle, LOCK_EX)
        yield
