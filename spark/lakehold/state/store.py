"""Interfaces for the state of a lake: stores, which change as a whole, and logs, which grow; in a lake or in memory."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic

from lakehold.state.rows import Rows, Value


class Store(ABC, Generic[Value]):
    """A set of values that changes as a whole."""

    @abstractmethod
    def values(self) -> tuple[Value, ...]:
        """Return all values in the order in which they were written; the same objects until someone changes them."""

    @abstractmethod
    def change(self, apply: Callable[[tuple[Value, ...]], Iterable[Value]]) -> tuple[Value, ...]:
        """Replace the values by `apply(values)` in one commit and return them; equal values commit nothing.

        `apply` runs again on the newest values when another writer committed in between; it raises to refuse.

        Raises:
            CommitConflict: Others committed first each time.
        """


class Log(ABC, Generic[Value]):
    """A sequence of values that are added one by one, and removed when they are old."""

    @abstractmethod
    def values(self) -> tuple[Value, ...]:
        """Return all values in the order in which they were added."""

    @abstractmethod
    def recent(self, field: str, from_ms: int) -> tuple[Value, ...]:
        """Return the values whose `field` is at a time or later, in the order in which they were added; reads no older files."""

    @abstractmethod
    def append(self, value: Value) -> None:
        """Add `value` in one commit, which conflicts with nothing. If a commit's outcome is unknown, it may be added twice.

        Raises:
            CommitConflict: Others committed first each time.
        """

    @abstractmethod
    def forget(
        self, field: str, before_ms: int, keeps: Callable[[Value], bool] = lambda _: False, *, dry_run: bool = False
    ) -> int:
        """Remove values whose `field` is before a time (exclusive); returns how many.

        A large file is removed as a whole or not at all, which is cheap: some thousands of old values may stay until all
        values of their file are old.

        Args:
            field: Epoch milliseconds, about in the order in which values were added; its column has its name.
            before_ms: Older values are removed.
            keeps: Returns whether an old value stays.
            dry_run: Only count how many would be removed at most.

        Raises:
            CommitConflict: Others committed first each time.
        """


class State(ABC):
    """The stores and logs of one lake."""

    @abstractmethod
    def store(self, rows: Rows[Value]) -> Store[Value]:
        """Return the store of a table."""

    @abstractmethod
    def log(self, rows: Rows[Value]) -> Log[Value]:
        """Return the log of a table."""


class MemoryState(State):
    """A state in this process only, for tests and trials without a lake; each change is atomic among threads."""

    def __init__(self) -> None:
        self._tables: dict[str, Any] = {}

    def store(self, rows: Rows[Value]) -> Store[Value]:
        """Return the store of a table."""
        store: Store[Value] = self._tables.setdefault(rows.table, _MemoryStore())
        return store

    def log(self, rows: Rows[Value]) -> Log[Value]:
        """Return the log of a table."""
        log: Log[Value] = self._tables.setdefault(rows.table, _MemoryLog())
        return log


class _MemoryStore(Store[Value]):
    def __init__(self) -> None:
        self._values: tuple[Value, ...] = ()
        self._lock = threading.Lock()

    def values(self) -> tuple[Value, ...]:
        return self._values

    def change(self, apply: Callable[[tuple[Value, ...]], Iterable[Value]]) -> tuple[Value, ...]:
        with self._lock:
            self._values = tuple(apply(self._values))
            return self._values


class _MemoryLog(Log[Value]):
    def __init__(self) -> None:
        self._store: _MemoryStore[Value] = _MemoryStore()

    def values(self) -> tuple[Value, ...]:
        return self._store.values()

    def recent(self, field: str, from_ms: int) -> tuple[Value, ...]:
        return tuple(value for value in self.values() if getattr(value, field) >= from_ms)

    def append(self, value: Value) -> None:
        self._store.change(lambda values: (*values, value))

    def forget(
        self, field: str, before_ms: int, keeps: Callable[[Value], bool] = lambda _: False, *, dry_run: bool = False
    ) -> int:
        gone = [value for value in self.values() if getattr(value, field) < before_ms and not keeps(value)]
        if not dry_run:
            self._store.change(lambda values: [value for value in values if value not in gone])
        return len(gone)
