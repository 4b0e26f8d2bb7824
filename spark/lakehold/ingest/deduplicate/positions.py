"""Positions as whole numbers that compare like them, and maxima within groups of sorted rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lakehold.model.high_water_marks import Position

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class RankedPositions:
    """The positions of a batch's changes.

    Args:
        ranks: `(n,)`: 2, 4, 6, … in the order of positions, equal for equal ones; 0 for a change without a position.
        distinct: `(d, 4)`: The positions themselves, ascending.
    """

    ranks: Integers
    distinct: Integers

    @classmethod
    def of(cls, parts: Sequence[Integers], known: Booleans) -> RankedPositions:
        """Rank positions.

        Args:
            parts: Their four numbers, each `(n,)`, the most significant first.
            known: `(n,)`: The change has a position.
        """
        rows = np.flatnonzero(known)
        rows = rows[np.lexsort([part[rows] for part in reversed(parts)])]
        is_new = np.zeros(len(rows), bool)
        is_new[:1] = True
        for part in parts:
            is_new[1:] |= np.diff(part[rows]) != 0
        ranks = np.zeros(len(known), np.int64)
        ranks[rows] = 2 * np.cumsum(is_new)
        return cls(ranks, np.stack([part[rows[is_new]] for part in parts], axis=1))

    def at(self, rank: int) -> Position | None:
        """Return the position of a rank; None for 0."""
        return None if rank == 0 else self._distinct(rank // 2 - 1)

    def rank_of(self, position: Position) -> int:
        """Return the rank of any position: an odd one, between those of its neighbors, if no change has it."""
        below = bisect_left(range(len(self.distinct)), position, key=self._distinct)
        is_found = below < len(self.distinct) and self._distinct(below) == position
        return 2 * below + (2 if is_found else 1)

    def _distinct(self, index: int) -> Position:
        a, b, c, d = self.distinct[index].tolist()
        return (a, b, c, d)


@dataclass(frozen=True)
class Groups:
    """Rows in an order in which those of a group are adjacent.

    Args:
        rows: `(n,)`: The row numbers in that order.
        group: `(n,)`: The number of each one's group, from 0, ascending.
    """

    rows: Integers
    group: Integers

    @classmethod
    def by(cls, group: Integers, *order: NDArray[np.integer]) -> Groups:
        """Sort rows by group, and within each by `order`, the most significant first; equal ones keep their order."""
        rows = np.lexsort((*reversed(order), group))
        return cls(rows, group[rows])

    def by_row(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values that are in this order by row number: shape `(n,)`."""
        found = np.empty_like(values)
        found[self.rows] = values
        return found

    @cached_property
    def begins(self) -> Booleans:
        """Mark where a group begins: shape `(n,)`."""
        begins = np.ones(len(self.group), bool)
        begins[1:] = self.group[1:] != self.group[:-1]
        return begins

    @cached_property
    def first(self) -> Integers:
        """Return where the group of each place begins: shape `(n,)`."""
        return np.maximum.accumulate(np.where(self.begins, np.arange(len(self.group)), 0))

    def highest(self, values: Integers) -> Integers:
        """Return the highest of each group's values up to each place, shape `(n,)`; `values` are in this order and at least 0."""
        offset: Integers = self.group * (values.max(initial=0) + 1)
        return np.maximum.accumulate(values + offset) - offset

    def highest_before(self, values: Integers) -> Integers:
        """Return the highest of each group's values before each place, shape `(n,)`; 0 at the start of a group, see `highest`."""
        before = np.zeros_like(values)
        before[1:] = self.highest(values)[:-1]
        before[self.begins] = 0
        return before

    def last(self, marked: Booleans) -> Integers:
        """Return the last marked place of the group at or before each place, shape `(n,)`; -1 if there is none."""
        found = np.maximum.accumulate(np.where(marked, np.arange(len(marked)), -1))
        return np.where(found >= self.first, found, -1)
