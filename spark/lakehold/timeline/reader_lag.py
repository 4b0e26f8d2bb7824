"""The lag of what reads tables over time: a hold, a subscriber, retention. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Protocol


class Changing(Protocol):
    """A table whose changes are known."""

    @property
    def upper_ms(self) -> int:
        """Return its write frontier, exclusive: the first time that is not readable yet."""

    @property
    def changes_ms(self) -> Sequence[int]:
        """Return the timestamps of its changes, ascending, at least of those that are kept."""


def reached_ms(upper_ms: int, now_ms: int) -> int:
    """Return the time up to which ages count (exclusive): a batch of a machine whose clock is ahead makes no history old."""
    return min(upper_ms, now_ms + 1)


def lag_ms(from_ms: int, tables: Iterable[Changing], now_ms: int) -> int:
    """Compute the lag of a reader that needs the state of `tables` at `from_ms`; of several tables the least `upper` counts.

    It counts from the last time at which they are as they were at `from_ms`. So the reader lags by the time since the first
    change that it has not read, and not at all while there is none.
    """
    found = list(tables)
    if not found:
        return 0
    next_ms = [t.changes_ms[place] for t in found if (place := bisect_right(t.changes_ms, from_ms)) < len(t.changes_ms)]
    return max(0, reached_ms(min(t.upper_ms for t in found), now_ms) - (min(next_ms) - 1)) if next_ms else 0
