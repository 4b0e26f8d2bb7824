"""A cache of diffs: several subscriptions over the same snapshots read and sum each diff once.

A diff here is that of a *step*: the rows that a table gained or lost from one of its snapshots to the next one that is read.
The diff of two snapshots never changes, so a cached diff is never out of date. It is only evicted for lack of space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from uuid import UUID
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
from cachetools import LRUCache

from lakehold.subscribe.consolidate import consolidated
from lakehold.subscribe.row_order import has_inexact
from lakehold.subscribe.timeline_steps import Step

_BYTES_BESIDE_ROWS = 1_000
"""Assumed memory of a step besides its rows: steps without rows are cached, too."""


@dataclass(frozen=True)
class DiffKey:
    """The identity of a diff.

    Attributes:
        table: The table's UUID.
        columns: Id of the schema that the rows have.
        names: The table's mapping of names to columns, for files that were written without field ids.
        before: A snapshot's id; None for an empty table.
        after: A snapshot's id; None for an empty table.
    """

    table: UUID
    columns: int
    names: str | None
    before: int | None
    after: int | None


class ReadDiffs:
    """Consolidated diffs of successive steps that were read together.

    Args:
        keys: The key of each step, in the order of the steps.
        steps: The steps, timestamps ascending.
        rows: The steps' diffs, in the order of `consolidated`.
        first: Zero-based positions of the row's columns by which each timestamp's rows are sorted first.
    """

    def __init__(self, keys: Sequence[DiffKey], steps: Sequence[Step], rows: pa.Table, first: tuple[int, ...]) -> None:
        """Take `rows` in which only identical rows are summed: some readers tell apart rows that are equal."""
        self._is_exact = not any(has_inexact(kind) for kind in rows.schema.types)
        self._places = {key: place for place, key in enumerate(keys)}
        self._rows = rows
        self._first = first
        timestamps = [step.mz_timestamp for step in steps]
        self._begins = [0, *np.searchsorted(rows.column(0).to_numpy(), timestamps, side="right").tolist()]

    @property
    def size_bytes(self) -> int:
        """Return the size in memory."""
        return int(self._rows.get_total_buffer_size()) + _BYTES_BESIDE_ROWS * len(self._places)

    def leading(self, keys: Sequence[DiffKey]) -> int:
        """Count how many of `keys`, from the first on, follow each other here without a gap; the first one must be here."""
        first, count = self._places[keys[0]], 1
        while count < len(keys) and self._places.get(keys[count]) == first + count:
            count += 1
        return count

    def whole(self, *, exact: bool) -> pa.Table:
        """Return the diffs of all steps, with their timestamps at reading time."""
        return self._rows if exact or self._is_exact else consolidated(self._rows, self._first)

    def of(self, key: DiffKey, steps: Sequence[Step], first: tuple[int, ...], *, exact: bool) -> pa.Table:
        """Return the diffs of steps that follow each other here without a gap.

        Args:
            key: Key of the first step.
            steps: The steps. The rows get their timestamps, which may differ from those at reading time.
            first: Positions of the columns by which each timestamp's rows are to be sorted first.
            exact: Whether only identical rows are to be summed.
        """
        place = self._places[key]
        begins = self._begins[place : place + len(steps) + 1]
        timestamps = np.repeat([step.mz_timestamp for step in steps], np.diff(begins))
        rows = self._rows.slice(begins[0], begins[-1] - begins[0])
        dated = rows.set_column(0, rows.field(0), pa.array(timestamps, pa.int64()))
        is_summed = first == self._first and (exact or self._is_exact)
        return dated if is_summed else consolidated(dated, first, exact=exact)


class SharedDiffs:
    """The diffs of a lake's tables that one process caches; the least recently used ones are evicted first.

    Args:
        max_bytes: Largest total size of cached diffs; 0 disables the cache.
    """

    def __init__(self, max_bytes: int) -> None:
        self._kept: LRUCache[ReadDiffs, ReadDiffs] = LRUCache(max_bytes, getsizeof=lambda read: read.size_bytes)
        self._of_key: WeakValueDictionary[DiffKey, ReadDiffs] = WeakValueDictionary()
        self._locks: dict[UUID, Lock] = {}
        self._lock = Lock()

    def lock_of(self, table: UUID) -> Lock:
        """Return a table's lock, to be held while its diffs are looked up, read and added.

        A thread that waits for the lock then finds the diffs that the other thread has read.
        """
        return self._locks.setdefault(table, Lock())

    def find(self, key: DiffKey) -> ReadDiffs | None:
        """Find the cached diffs that contain a step, perhaps with other steps; None if the step is not cached."""
        with self._lock:
            found = self._of_key.get(key)
            return None if found is None else self._kept.get(found, found)

    def has(self, key: DiffKey) -> bool:
        """Return whether the diff is cached."""
        return key in self._of_key

    def add(self, keys: Sequence[DiffKey], read: ReadDiffs) -> None:
        """Store diffs that were read, if they fit."""
        if read.size_bytes > self._kept.maxsize:
            return
        with self._lock:
            self._kept[read] = read
            self._of_key.update(dict.fromkeys(keys, read))
