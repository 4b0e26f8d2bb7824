"""The lag of a table over the last day, from the batches that its reader committed. Pure.

A table shows the timestamp of a batch from that batch's commit until the next one. Until then its newest rows grow older: how old
they became is the lag, and how many messages the next batch read is how many had come meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
        lag_ms: How old the newest readable time became at most; None: no batch is known for it.
        messages: Messages that its batches read.
    """

    start_ms: int
    end_ms: int
    lag_ms: int | None
    messages: int


@dataclass(frozen=True)
class Lag:
    """The lag of a table's reader over the last day, as bins of equal length, oldest first."""

    bins: tuple[LagBin, ...] = ()

    @property
    def most_ms(self) -> int | None:
        """Return the largest lag of the day; None if nothing is known."""
        return max((each.lag_ms for each in self.bins if each.lag_ms is not None), default=None)

    @property
    def messages(self) -> int:
        """Return how many messages were read in the day."""
        return sum(each.messages for each in self.bins)

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
    begin_ms = now_ms - DAY_MS
    # The times at which something became readable, each with the newest readable time from then on.
    shown = [(each.committed_at_ms, each.mz_timestamp) for each in batches] or [(begin_ms, upper_ms - 1)]
    lags: list[int | None] = [None] * BINS
    messages = [0] * BINS
    for each in batches:
        if begin_ms <= each.committed_at_ms < now_ms:
            messages[_place(each.committed_at_ms, begin_ms)] += each.records
    for (from_ms, newest_ms), (until_ms, _) in pairwise([*shown, (now_ms, 0)]):
        # A day may have a batch every second: each looks only at the bins that it is in.
        for place in range(_place(from_ms, begin_ms), _place(until_ms - 1, begin_ms) + 1):
            lag_ms = max(0, min(until_ms, _edge(place + 1, begin_ms)) - newest_ms)
            lags[place] = max(lag_ms, lags[place] or 0)
    return Lag(
        tuple(
            LagBin(_edge(place, begin_ms), _edge(place + 1, begin_ms), lags[place], messages[place])
            for place in range(BINS)
        )
    )


def _edge(place: int, begin_ms: int) -> int:
    """Return when a bin begins."""
    return begin_ms + DAY_MS * place // BINS


def _place(at_ms: int, begin_ms: int) -> int:
    """Return the bin that a time is in, or is nearest to."""
    return min(max(0, (at_ms - begin_ms) * BINS // DAY_MS), BINS - 1)
