"""Deletes files that nothing refers to, and reports those that the store refuses to delete.

A refusal undoes nothing: a refused file of a table is an orphan, which `lakehold maintain` finds and tries to delete again. So
nobody has to wait for a deletion: a commit leaves it to a thread of its own.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock, Thread

from pyarrow import ArrowException
from pyiceberg.io import FileIO

from lakehold.errors import UpstreamUnavailable

logger = logging.getLogger(__name__)

_AT_ONCE = 16
"""Files that are deleted at once: an object store answers after tens of milliseconds."""


@dataclass(frozen=True)
class Refusal:
    """Files that a store did not delete; false if there are none.

    Attributes:
        files: How many.
        reason: The store's own message about the first of them.
    """

    files: int = 0
    reason: str = ""

    def __bool__(self) -> bool:
        return self.files > 0

    def __add__(self, other: Refusal) -> Refusal:
        return Refusal(self.files + other.files, self.reason or other.reason)


def delete(delete_file: Callable[[str], None], paths: Sequence[str]) -> Refusal:
    """Delete files, and return those that the store refused to delete; files that are gone already are none.

    When the store refuses all of some files at once, the remaining ones count as refused and are not tried: each refusal may
    take all the retries of the store's client.

    Args:
        delete_file: Deletes one file.
        paths: The files.
    """
    refusal = Refusal()
    if not paths:
        return refusal
    with ThreadPoolExecutor(min(_AT_ONCE, len(paths)), thread_name_prefix="lakehold-deletes") as threads:
        for start in range(0, len(paths), _AT_ONCE):
            some = paths[start : start + _AT_ONCE]
            reasons = [reason for reason in threads.map(partial(_refused, delete_file), some) if reason]
            if len(reasons) == len(some):
                return refusal + Refusal(len(paths) - start, reasons[0])
            refusal += Refusal(len(reasons), next(iter(reasons), ""))
    return refusal


def delete_or_log(io: FileIO, paths: Sequence[str]) -> None:
    """Delete files of a table; those that the store refuses to delete are logged in one line."""
    if refusal := delete(io.delete, paths):
        logger.warning(
            "the store refused to delete %d of %d files, which maintenance tries again: %s",
            refusal.files,
            len(paths),
            refusal.reason,
        )


class _Later:
    """Runs functions one after the other, in a thread that lasts as long as there are some: what each raises is logged.

    A later one may delete what an earlier one still reads, so that the order matters. The process does not end before the
    thread does.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin without functions and without a thread, as a process does that was forked: it has no thread of its parent."""
        self._lock = Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._thread: Thread | None = None

    def add(self, do: Callable[[], None]) -> None:
        with self._lock:
            self._waiting.append(do)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="lakehold-deletes-later")
                self._thread.start()

    def wait(self) -> None:
        with self._lock:  # a thread that another one has made is started then
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (do := self._next()) is not None:
            try:
                do()
            except Exception:
                logger.warning("files that nothing needs could not be deleted", exc_info=True)

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._thread = None
            return None


_later = _Later()
os.register_at_fork(after_in_child=_later.renew)


def later(deletes: Callable[[], None]) -> None:
    """Run `deletes` in a thread, after those that were given before; whatever it raises is logged."""
    _later.add(deletes)


def wait_for_deletions() -> None:
    """Wait until everything that `later` was given before has run."""
    _later.wait()


def deletion_refused(full_name: str, location: str, refusal: Refusal) -> UpstreamUnavailable:
    """Return the error for files of a table that are still there although nothing needs them."""
    return UpstreamUnavailable(
        f'the store refused to delete files of "{full_name}"',
        code="deletion-refused",
        detail=f"At least {refusal.files} files that nothing needs are still there. The store says: {refusal.reason}.",
        hint=f"Let the users that lakehold and Spark run as delete files below {location}; on S3 they need s3:DeleteObject. "
        "A busy store may take them later. lakehold maintain tries again once the files are older than LAKEHOLD_ORPHAN_AGE_MS.",
    )


def _refused(delete_file: Callable[[str], None], path: str) -> str:
    """Delete a file; return the reason if the store refuses, else an empty text."""
    try:
        delete_file(path)
    except FileNotFoundError:  # a REST catalog deletes old metadata itself
        logger.debug("the file %s is gone already", path)
    except (OSError, ArrowException) as error:
        # PyIceberg replaces the store's words by its own for some refusals.
        words = str(error.__cause__ or error).strip().splitlines() or [type(error).__name__]
        return words[0].rstrip(".")
    return ""
