"""The lag of what reads tables over time: a hold, a subscriber, retention. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Changes:
    """The changes of a table, as far as they are known.

    Attributes:
        times_ms: The timestamps of those that are known, ascending.
        gaps_ms: Those of `times_ms` before which others may be missing, because their snapshots were expired.
    """

    times_ms: Sequence[int] = ()
    gaps_ms: frozenset[int] = frozenset()

    def first_after(self, time_ms: int) -> int | None:
        """Return the earliest timestamp that the first change after `time_ms` may have; None if there is no such change."""
        place = bisect_right(self.times_ms, time_ms)
        if place == len(self.times_ms):
            return None
        return time_ms + 1 if self.times_ms[place] in self.gaps_ms else self.times_ms[place]


class Changing(Protocol):
    """A table whose changes are known."""

    @property
    def upper_ms(self) -> int:
        """Return its write frontier, exclusive: the first time that is not readable yet."""

    @property
    def changes(self) -> Changes:
        """Return its changes, at least those that are kept."""


def reached_ms(upper_ms: int, now_ms: int) -> int:
    """Return the time up to which ages count (exclusive): a batch of a machine whose clock is ahead makes no history old."""
    return min(upper_ms, now_ms + 1)


def lag_ms(from_ms: int, tables: Iterable[Changing], now_ms: int) -> int:
    """Compute the lag of a reader that needs the state of `tables` at `from_ms`; of several tables the least `upper` counts.

    It counts from the last time at which they are as they were at `from_ms`. So the reader lags by the time since the first
    change that it has not read, and not at all while there is none. Where expired snapshots hide when that change was, it may
    have been right after `from_ms`: otherwise the reader would keep history for ever.
    """
    found = list(tables)
    if not found:
        return 0
    next_ms = [first_ms for table in found if (first_ms := table.changes.first_after(from_ms)) is not None]
    return max(0, reached_ms(min(t.upper_ms for t in found), now_ms) - (min(next_ms) - 1)) if next_ms else 0
