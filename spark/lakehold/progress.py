"""Progress of long work: the interface that library code reports to, and the implementations that need no terminal."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

_LOG_INTERVAL_S = 5.0
"""A log line at most this often: a day of following a source stays readable."""

_log = logging.getLogger(__name__)


class Task(Protocol):
    """The interface of one piece of work in progress."""

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Report that `amount` more units are done; `note` says what is going on now."""

    def expect(self, total: int) -> None:
        """Report the total number of units, as known by now."""


class Progress(Protocol):
    """The interface that shows work in progress."""

    def task(self, what: str, *, unit: str, total: int | None = None) -> AbstractContextManager[Task]:
        """Begin `what`, counted in `unit` up to `total` if known; it ends with the `with` block."""


class NoProgress:
    """A progress that shows nothing."""

    @contextmanager
    def task(self, what: str, *, unit: str, total: int | None = None) -> Iterator[Task]:  # noqa: ARG002 - the seam's
        """Begin a task without showing it."""
        yield _Silent()


class _Silent:
    def advance(self, amount: int = 1, note: str = "") -> None:
        """Show nothing."""

    def expect(self, total: int) -> None:
        """Show nothing."""


class LogProgress:
    """A progress that writes log lines: every few seconds, and when a task ends."""

    @contextmanager
    def task(self, what: str, *, unit: str, total: int | None = None) -> Iterator[Task]:
        """Begin a task; an error ends it without the closing line."""
        task = _Logged(what, unit, total)
        yield task
        task.log()


class _Logged:
    def __init__(self, what: str, unit: str, total: int | None) -> None:
        self._what = what
        self._unit = unit
        self._total = total
        self._done = 0
        self._note = ""
        self._logged_at_s = time.monotonic()

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Count, and log if the last line is old enough."""
        self._done += amount
        self._note = note
        if time.monotonic() - self._logged_at_s >= _LOG_INTERVAL_S:
            self.log()

    def expect(self, total: int) -> None:
        """Count up to another total from now on."""
        self._total = total

    def log(self) -> None:
        """Write a line now."""
        self._logged_at_s = time.monotonic()
        note = f" ({self._note})" if self._note else ""
        of = "" if self._total is None else f" of {self._total}"
        _log.info("%s: %d%s %s%s", self._what, self._done, of, self._unit, note)
