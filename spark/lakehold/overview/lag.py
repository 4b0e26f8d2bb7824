"""The lag of tables and followers over the last day, from what was committed. Pure.

A table shows the timestamp of a batch from that batch's commit until the next one. Until then its newest rows grow older: how old
they became is the lag, and how many messages the next batch read is how many had come meanwhile. A follower (a subscription or a
materialized view) lags while a change of a table that it reads waits: from that table's commit until its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from lakehold.state.batch_protocol import Batch, RecentBatch

DAY_MS = 24 * 60 * 60 * 1000
BINS = 24
_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class LagBin:
    """A part of the last day.

    Attributes:
        start_ms: Its beginning, epoch milliseconds (inclusive).
        end_ms: Its end (exclusive).
        lag_ms: How old the newest readable time became at most, or the oldest waiting change; None: nothing is known.
        taken: Messages that batches read in it, or rows that a follower took.
    """

    start_ms: int
    end_ms: int
    lag_ms: int | None
    taken: int


@dataclass(frozen=True)
class Lag:
    """The lag of a table's reader, a follower or a hold over the last day.

    Attributes:
        bins: Parts of equal length, oldest first.
        waiting: Rows that a follower has not taken now, at most.
    """

    bins: tuple[LagBin, ...] = ()
    waiting: int = 0

    @property
    def most_ms(self) -> int | None:
        """Return the largest lag of the day; None if nothing is known."""
        return max((each.lag_ms for each in self.bins if each.lag_ms is not None), default=None)

    @property
    def taken(self) -> int:
        """Return how many messages were read, or rows taken, in the day."""
        return sum(each.taken for each in self.bins)

    @property
    def sparkline(self) -> str:
        """Draw the lag as one character for two bins; a space where nothing is known."""
        most = max(1, self.most_ms or 0)
        lags = [each.lag_ms for each in self.bins]
        worst = [
            max((lag for lag in pair if lag is not None), default=None)
            for pair in zip(lags[::2], lags[1::2], strict=True)
        ]
        return "".join(" " if lag is None else _BLOCKS[lag * (len(_BLOCKS) - 1) // most] for lag in worst)


def lag_of(batches: Sequence[Batch | RecentBatch], upper_ms: int | None, now_ms: int) -> Lag:
    """Return the lag of the tables of one reader over the day before `now_ms`.

    Args:
        batches: The batches that the reader committed in that day, by timestamp.
        upper_ms: The reader's `upper`, which has stayed the same for the day if there are no batches; None: it has none.
        now_ms: Epoch milliseconds.
    """
    if upper_ms is None:
        return Lag()
    # The times at which something became readable, each with the newest readable time from then on.
    shown = [(each.committed_at_ms, each.mz_timestamp) for each in batches] or [(now_ms - DAY_MS, upper_ms - 1)]
    spans = (
        Span(newest_ms, from_ms, until_ms) for (from_ms, newest_ms), (until_ms, _) in pairwise([*shown, (now_ms, 0)])
    )
    return _lag(spans, ((each.committed_at_ms, each.records) for each in batches), [None] * BINS, now_ms)


@dataclass(frozen=True)
class InputChange:
    """A change of a table that a follower reads: when it was committed, its timestamp, and its rows at most."""

    committed_at_ms: int
    mz_timestamp: int
    rows: int


@dataclass(frozen=True)
class Advance:
    """A time at which a follower or hold went on: it has taken the changes below a timestamp (exclusive)."""

    at_ms: int
    below_ms: int


def follower_lag(changes: Iterable[InputChange], advances: Iterable[Advance], below_ms: int | None, now_ms: int) -> Lag:
    """Return how old the oldest change was that a follower had not taken, over the day before `now_ms`, at most.

    A follower that found nothing to publish has gone on without a commit. Then its lag seems to grow until its next commit.

    Args:
        changes: The changes of the tables that it reads, as far as they are known.
        advances: When it went on, as far as that is known; its lag before the first of these is not.
        below_ms: It has taken the changes below now (exclusive). When it took those after the last advance is not known.
        now_ms: Epoch milliseconds.
    """
    known = sorted(advances, key=lambda each: (each.below_ms, each.at_ms))
    if not known:
        return Lag()
    begin_ms, belows = now_ms - DAY_MS, [each.below_ms for each in known]
    oldest_ms: dict[int, int] = {}
    rows: Counter[int] = Counter()
    for change in changes:
        place = bisect_right(belows, change.mz_timestamp)
        if place == len(known) and below_ms is not None and change.mz_timestamp < below_ms:
            continue
        oldest_ms[place] = min(change.committed_at_ms, oldest_ms.get(place, change.committed_at_ms))
        rows[place] += change.rows
    ends_ms = [*(each.at_ms for each in known), now_ms]
    spans = (Span(since_ms, since_ms, ends_ms[place]) for place, since_ms in oldest_ms.items())
    taken = ((ends_ms[place], count) for place, count in rows.items() if place < len(known))
    first = _place(min(each.at_ms for each in known), begin_ms)
    found = _lag(spans, taken, [None] * first + [0] * (BINS - first), now_ms)
    return replace(found, waiting=rows[len(known)])


@dataclass(frozen=True)
class Span:
    """A time from `from_ms` to `until_ms` during which a lag counts from `since_ms`."""

    since_ms: int
    from_ms: int
    until_ms: int


def _lag(spans: Iterable[Span], taken: Iterable[tuple[int, int]], lags: list[int | None], now_ms: int) -> Lag:
    """Return the lag from spans, from what was taken at which time, and from the lag of bins that no span is in."""
    begin_ms = now_ms - DAY_MS
    counts = [0] * BINS
    for at_ms, count in taken:
        if begin_ms <= at_ms < now_ms:
            counts[_place(at_ms, begin_ms)] += count
    for span in spans:
        # A day may have a batch every second: each looks only at the bins that it is in.
        if span.until_ms <= begin_ms:
            continue
        for place in range(_place(span.from_ms, begin_ms), _place(span.until_ms - 1, begin_ms) + 1):
            lag_ms = max(0, min(span.until_ms, _edge(place + 1, begin_ms)) - span.since_ms)
            lags[place] = max(lag_ms, lags[place] or 0)
    return Lag(
        tuple(
            LagBin(_edge(place, begin_ms), _edge(place + 1, begin_ms), lags[place], counts[place])
            for place in range(BINS)
        )
    )


def _edge(place: int, begin_ms: int) -> int:
    """Return when a bin begins."""
    return begin_ms + DAY_MS * place // BINS


def _place(at_ms: int, begin_ms: int) -> int:
    """Return the bin that a time is in, or is nearest to."""
    return min(max(0, (at_ms - begin_ms) * BINS // DAY_MS), BINS - 1)
