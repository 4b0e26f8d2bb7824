"""Diffs that have been read, kept for whoever asks next: subscriptions over the same snapshots read and sum each diff once.

The diff of two snapshots never changes, so what is kept is never out of date; it only has to go when there is too much of it.
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
from lakehold.subscribe.steps import Step

_BYTES_BESIDE_ROWS = 1_000
"""What a step takes besides its rows: one without any is kept, too."""


@dataclass(frozen=True)
class DiffKey:
    """What decides a diff.

    Attributes:
        table: The table's UUID.
        columns: The id of the schema that its rows are given in.
        names: The table's mapping of names to columns, for files that were written without field ids.
        before: A snapshot's id; None: no rows.
        after: A snapshot's id; None: no rows.
    """

    table: UUID
    columns: int
    names: str | None
    before: int | None
    after: int | None


class ReadDiffs:
    """Consolidated diffs of successive steps, read together.

    Args:
        keys: What each step is known by, in their order.
        steps: The steps, timestamps ascending.
        rows: Their diffs, in the order of `consolidated`.
        first: Places of the columns that the rows of a timestamp are sorted by first.
    """

    def __init__(self, keys: Sequence[DiffKey], steps: Sequence[Step], rows: pa.Table, first: tuple[int, ...]) -> None:
        self._places = {key: place for place, key in enumerate(keys)}
        self._rows = rows
        self._first = first
        timestamps = [step.mz_timestamp for step in steps]
        self._begins = [0, *np.searchsorted(rows.column(0).to_numpy(), timestamps, side="right").tolist()]

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return int(self._rows.get_total_buffer_size()) + _BYTES_BESIDE_ROWS * len(self._places)

    def leading(self, keys: Sequence[DiffKey]) -> int:
        """How many of `keys` are here one behind the other, beginning with the first, which is here."""
        first, count = self._places[keys[0]], 1
        while count < len(keys) and self._places.get(keys[count]) == first + count:
            count += 1
        return count

    def of(self, key: DiffKey, steps: Sequence[Step], first: tuple[int, ...]) -> pa.Table:
        """The diffs of steps that are here one behind the other.

        Args:
            key: What the first of them is known by.
            steps: The steps, whose timestamps the rows get: they may be others than those of when they were read.
            first: Places of the columns that the rows of a timestamp are to be sorted by first.
        """
        place = self._places[key]
        begins = self._begins[place : place + len(steps) + 1]
        timestamps = np.repeat([step.mz_timestamp for step in steps], np.diff(begins))
        rows = self._rows.slice(begins[0], begins[-1] - begins[0])
        dated = rows.set_column(0, rows.field(0), pa.array(timestamps, pa.int64()))
        return dated if first == self._first else consolidated(dated, first)


class SharedDiffs:
    """The diffs that one process keeps of a lake's tables; those that were asked for least recently go first.

    Args:
        max_bytes: Bytes that are kept at most; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self._kept: LRUCache[ReadDiffs, ReadDiffs] = LRUCache(max_bytes, getsizeof=lambda read: read.size_bytes)
        self._of_key: WeakValueDictionary[DiffKey, ReadDiffs] = WeakValueDictionary()
        self._turns: dict[UUID, Lock] = {}
        self._lock = Lock()

    def turn(self, table: UUID) -> Lock:
        """To be held while diffs of a table are looked for, read and added: who waits finds what the other has read."""
        return self._turns.setdefault(table, Lock())

    def find(self, key: DiffKey) -> ReadDiffs | None:
        """What was read of the step, perhaps together with others; None: nothing is kept."""
        with self._lock:
            found = self._of_key.get(key)
            return None if found is None else self._kept.get(found, found)

    def has(self, key: DiffKey) -> bool:
        """Whether the diff need not be read."""
        return key in self._of_key

    def add(self, keys: Sequence[DiffKey], read: ReadDiffs) -> None:
        """Keep what was read, if there is room for it."""
        if read.size_bytes > self._kept.maxsize:
            return
        with self._lock:
            self._kept[read] = read
            self._of_key.update(dict.fromkeys(keys, read))
