"""The model of a whole lake: what each table, view and output has to show, computed from the messages alone. Pure.

A message sets the row of a key, or deletes it. Each batch of the lake has a timestamp, and read the messages below an offset. So
the rows of a table at a time follow from the messages below the offset of its last batch until then, and all else
follows from these rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = tuple[Any, ...]
Bag = Counter[Row]
"""Rows, with how often each occurs."""


@dataclass
class Log:
    """The messages of a topic: key and row, with None for a deleted row; None for a message that changes nothing."""

    messages: list[tuple[int, Mapping[str, Any] | None] | None] = field(default_factory=list)

    def rows(self, end: int | None = None) -> dict[int, Mapping[str, Any]]:
        """Return the rows by key after the messages below offset `end`; without it, after all."""
        found: dict[int, Mapping[str, Any]] = {}
        for key, row in filter(None, self.messages[:end]):
            if row is None:
                found.pop(key, None)
            else:
                found[key] = row
        return found


@dataclass
class Past:
    """The past of a table, as the batches of its source made it.

    Attributes:
        log: The messages of its topic.
        ends: The first offset that was not read yet after each batch, by the batch's timestamp.
        joined_ms: The timestamp of the batch with which it began to be one of its source's tables.
    """

    log: Log
    ends: dict[int, int] = field(default_factory=dict)
    joined_ms: int = 0

    @property
    def end(self) -> int:
        """Return the first offset that was not read yet."""
        return self.ends[max(self.ends)] if self.ends else 0

    def times(self, first_ms: int, until_ms: int) -> list[int]:
        """Return `first_ms` and the timestamps of the batches after it and below `until_ms`, ascending."""
        return [first_ms, *(ms for ms in sorted(self.ends) if first_ms < ms < until_ms)]

    def bag(self, at_ms: int, columns: Iterable[str]) -> Bag:
        """Return the rows at a time, with some columns; a row that lacks a column has a null there."""
        names = list(columns)
        return Counter(tuple(row.get(name) for name in names) for row in self._rows(at_ms).values())

    def read(self, timestamp: int, start: int, end: int) -> None:
        """Take a batch that the lake reports; of one known already, only check that it is still the same."""
        if timestamp in self.ends:
            assert self.ends[timestamp] == end, "the offsets of a batch never change"
            return
        last = max(self.ends, default=None)
        if timestamp < self.joined_ms:
            return
        assert last is None or timestamp > last, "timestamps increase"
        assert start == (0 if last is None else self.ends[last]), "a batch begins where the one before ended"
        assert start <= end <= len(self.log.messages), "a batch ends at a message that exists"
        self.ends[timestamp] = end

    def _rows(self, at_ms: int) -> dict[int, Mapping[str, Any]]:
        times = sorted(self.ends)
        place = bisect_right(times, at_ms)
        return self.log.rows(self.ends[times[place - 1]]) if place else {}


def counted(rows: Bag) -> Bag:
    """Return what `SELECT n, count(*), sum(id) … GROUP BY n` gives for rows that begin with `id` and `n`."""
    counts: Counter[Any] = Counter()
    sums: Counter[Any] = Counter()
    for (key, n, *_), times in rows.items():
        counts[n] += times
        sums[n] += key * times
    return Counter((n, counts[n], sums[n]) for n in counts)


def replayed(diffs: Iterable[Row], times: Iterable[int]) -> dict[int, Bag]:
    """Sum diffs (`mz_timestamp`, `mz_diff`, columns …) up to each of some ascending times."""
    left = sorted(diffs, key=lambda diff: diff[0])
    total: Bag = Counter()
    found: dict[int, Bag] = {}
    place = 0
    for ms in times:
        while place < len(left) and left[place][0] <= ms:
            total[left[place][2:]] += left[place][1]
            place += 1
        assert all(count >= 0 for count in total.values()), f"more deleted than there was at {ms}"
        found[ms] = +total
    assert place == len(left), "a diff at a time that no batch has"
    return found


def assert_shows(diffs: Iterable[Row], times: Iterable[int], expected: Callable[[int], Bag], what: str) -> None:
    """Assert that diffs sum to the rows that are expected at each of some ascending times."""
    for ms, bag in replayed(diffs, times).items():
        wanted = expected(ms)
        assert bag == wanted, f"{what} at {ms}: has {dict(bag - wanted)} too many, lacks {dict(wanted - bag)}"
