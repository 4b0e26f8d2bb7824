"""Counts the unreadable records of a partition that may be events of a transaction. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lakehold.ingest.transactions.log import Run


class Unreadable:
    """Unreadable records of a partition, among its runs of events.

    Args:
        runs: Them, in the order of offsets; there are some.
        ranked: The runs of events with the ranks of their transactions, in the order of offsets.
        highest: The highest rank that there may be.
        stop: Where the partition was left (exclusive).
    """

    def __init__(self, runs: Sequence[Run], ranked: Sequence[tuple[int, Run]], highest: int, stop: int) -> None:
        self._first = np.array([run.first for run in runs])
        self._records = np.cumsum([0, *(run.records for run in runs)])
        self._ranked = ranked
        self._highest = highest
        self._stop = stop

    def near(self, rank: int) -> int:
        """Count what stands after the events of earlier transactions, and before those of later ones."""
        low = np.searchsorted(self._first, self._last_until[rank - 1], side="right")
        high = np.searchsorted(self._first, self._first_from[rank + 1], side="left")
        return int(self._records[max(low, high)] - self._records[low])

    @cached_property
    def _ranks(self) -> npt.NDArray[np.int64]:
        return np.array([rank for rank, _ in self._ranked], np.int64)

    @cached_property
    def _last_until(self) -> npt.NDArray[np.int64]:
        """Find the last offset of transactions up to each rank; -1 where there is none. Rank 0 was taken before."""
        found = np.full(self._highest + 2, -1)
        np.maximum.at(found, self._ranks, np.array([run.last for _, run in self._ranked], np.int64))
        found[0] = -1
        return np.maximum.accumulate(found)

    @cached_property
    def _first_from(self) -> npt.NDArray[np.int64]:
        """Find the first offset of transactions from each rank on; `stop` where there is none."""
        found = np.full(self._highest + 2, self._stop)
        np.minimum.at(found, self._ranks, np.array([run.first for _, run in self._ranked], np.int64))
        return np.minimum.accumulate(found[::-1])[::-1]
