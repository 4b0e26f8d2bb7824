"""The cache directory. It has a set complete and verified, or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lakehold.artifacts.maven import copy_artifacts
from lakehold.artifacts.sets import SETS_DIRECTORY, ArtifactSet, find_set
from lakehold.errors import EnvironmentMissing
from lakehold.home import below_home

_log = logging.getLogger(__name__)

_ARCHIVE_SUFFIX = ".tar.gz"


def cache_root() -> Path:
    """Return the directory of all sets: `LAKEHOLD_CACHE_DIR`, by default `~/.cache/lakehold`."""
    configured = os.environ.get("LAKEHOLD_CACHE_DIR")
    return Path(configured) if configured else below_home(Path("~/.cache/lakehold"), "LAKEHOLD_CACHE_DIR")


def directory(
    set_name: str, *, sets_directory: Path = SETS_DIRECTORY, on_event: Callable[[str], None] = _log.info
) -> Path:
    """Return the directory that holds the set's files; fetch them if they are not cached yet.

    Archives of the set are unpacked in it. A cached set needs no Maven.

    Args:
        set_name: Name of a set.
        sets_directory: Where the sets are defined.
        on_event: Called with one line of progress at a time.

    Raises:
        DefinitionError: No set has that name.
        EnvironmentMissing: Maven or Java is missing, a file cannot be fetched, or is not the expected one.
    """
    artifact_set = find_set(set_name, sets_directory)
    target = cache_root() / artifact_set.key
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(target.parent):
            if not target.is_dir():
                _fetch(artifact_set, target, on_event)
    except OSError as error:
        raise EnvironmentMissing(
            f'the files of set "{set_name}" cannot be kept in "{cache_root()}"',
            code="artifact-fetch",
            detail=f"{error}.",
            hint="Make the directory writable, or set LAKEHOLD_CACHE_DIR to another one.",
        ) from error
    return target


def is_cached(set_name: str) -> bool:
    """Return whether the set's files are on this machine.

    Raises:
        DefinitionError: No set has that name.
    """
    return (cache_root() / find_set(set_name).key).is_dir()


def jars(
    set_name: str, *, sets_directory: Path = SETS_DIRECTORY, on_event: Callable[[str], None] = _log.info
) -> list[Path]:
    """List all jars of the set, sorted by path; fetches them if need be, with the errors of `directory`."""
    return sorted(directory(set_name, sets_directory=sets_directory, on_event=on_event).rglob("*.jar"))


def lock(set_name: str, *, sets_directory: Path = SETS_DIRECTORY, on_event: Callable[[str], None] = _log.info) -> Path:
    """Fetch the files that the set's pom names now and write new sums to SHA256SUMS.

    Returns:
        The file written.
    """
    artifact_set = find_set(set_name, sets_directory)
    cache_root().mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(cache_root()), tempfile.TemporaryDirectory() as fetched:
        copy_artifacts(artifact_set, Path(fetched), on_event)
        lines = [f"{_sha256(path)}  {path.name}\n" for path in sorted(Path(fetched).iterdir())]
    artifact_set.sums.write_text("".join(lines))
    return artifact_set.sums


def _fetch(artifact_set: ArtifactSet, target: Path, on_event: Callable[[str], None]) -> None:
    on_event(f"{artifact_set.name}: fetching {len(artifact_set.checksums())} files")
    # A directory beside the target, so that the rename stays within one file system and is atomic.
    partial = Path(tempfile.mkdtemp(prefix=f"{target.name}.partial-", dir=target.parent))
    try:
        copy_artifacts(artifact_set, partial, on_event)
        _verify(artifact_set, partial)
        _unpack_archives(partial)
        partial.chmod(0o755)  # mkdtemp made it private; servers of the stack may run as another user
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    on_event(f"{artifact_set.name}: verified, in {target}")


def _verify(artifact_set: ArtifactSet, fetched: Path) -> None:
    expected = artifact_set.checksums()
    found = {path.name: _sha256(path) for path in fetched.iterdir()}
    faults = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    faults += [f"{name} is not listed" for name in sorted(found.keys() - expected.keys())]
    faults += [
        f"{name} has SHA-256 {found[name]}, expected {expected[name]}"
        for name in sorted(expected.keys() & found.keys())
        if expected[name] != found[name]
    ]
    if faults:
        raise EnvironmentMissing(
            f'the files fetched for set "{artifact_set.name}" are not the expected ones',
            code="artifact-checksum",
            detail="; ".join(faults) + ".",
            hint="Delete the file from Maven's local repository (~/.m2/repository) and fetch again. "
            "If the error stays, the files that Maven downloads were changed: do not use them.",
        )


def _unpack_archives(folder: Path) -> None:
    for archive in folder.glob(f"*{_ARCHIVE_SUFFIX}"):
        with tarfile.open(archive) as content:
            # Its sum was checked, so nothing is filtered: Debian 12 has Python 3.11.2, whose extractall has no filters.
            content.extractall(folder)
        archive.unlink()


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, because Maven's local repository must have only one writer."""
    with (folder / "fetch.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
