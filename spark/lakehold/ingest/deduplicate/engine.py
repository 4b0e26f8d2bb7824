"""Decides which changes of a batch count, which wins for its key, and which change gives values that Debezium did not send.

Pure and vectorized: positions are ranks, keys are numbers, and a rule is a comparison of arrays.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from lakehold.ingest.deduplicate.headers import Headers
from lakehold.ingest.deduplicate.positions import Booleans, Groups, Integers
from lakehold.model.marks import Marks, Position


@dataclass(frozen=True)
class Rule:
    """The rule by which changes of a table are deduplicated.

    Args:
        skips_applied: Whether changes at or below high-water marks are repeats; otherwise every change counts.
        by_position: Whether a key's changes may be in several partitions, so that only their positions order them.
        marks: The table's marks before the batch.
    """

    skips_applied: bool
    by_position: bool
    marks: Marks


@dataclass(frozen=True)
class Decisions:
    """The decisions, as arrays of shape `(n,)` in the order of the headers.

    Args:
        counts: The change is neither a repeat nor an error.
        wins: The change decides the state of its key.
    """

    counts: Booleans
    wins: Booleans


class Engine:
    """The decisions for one batch and one table.

    Args:
        headers: The changes.
        rule: The rule by which they are deduplicated.
    """

    def __init__(self, headers: Headers, rule: Rule) -> None:
        self._headers = headers
        self._rule = rule
        self._by_key = _in_order_of_application(headers, by_position=rule.by_position)

    def decide(self, *, after: Position | None = None, not_below: Position | None = None) -> Decisions:
        """Decide on all changes.

        Args:
            after: Changes at or below it do not count: they precede a TRUNCATE.
            not_below: Changes below it do not count: they precede a re-snapshot.
        """
        counts = self._candidates(after, not_below)
        if self._rule.skips_applied:
            counts &= self._is_unpassed()
            counts &= self._lies_above(self._highest_earlier_of_key(counts))
        return Decisions(counts, self._last_of_key(counts & self._headers.changes_row))

    def givers(self, decisions: Decisions, columns: Collection[str]) -> Integers:
        """Find the change that has a value which a winner lacks.

        Args:
            decisions: The decisions.
            columns: The columns whose values changes have.

        Returns:
            `(k,)`, for each entry of `headers.kept`: the row of the last change of the key that counts, is not after the winner
            and has the column; -1 if there is none, or the entry's change does not win.
        """
        kept, rows = self._headers.kept, self._by_key.rows
        place = self._by_key.by_row(np.arange(len(rows)))
        givers = np.full(len(kept.rows), -1)
        for code in (code for code, name in enumerate(kept.names) if name in columns):
            of_column = kept.codes == code
            knows = decisions.counts.copy()
            knows[kept.rows[of_column]] = False
            wanting = of_column & decisions.wins[kept.rows]
            found = self._by_key.last(knows[rows])[place[kept.rows[wanting]]]
            givers[wanting] = np.where(found >= 0, rows[found], -1)
        return givers

    def _candidates(self, after: Position | None, not_below: Position | None) -> Booleans:
        headers, ranks = self._headers, self._headers.positions.ranks
        found = headers.changes_row | headers.is_truncate
        if after is not None:
            found &= (ranks == 0) | (ranks > headers.positions.rank_of(after))
        if not_below is not None:
            found &= (ranks == 0) | (ranks >= headers.positions.rank_of(not_below))
        return found

    def _is_unpassed(self) -> Booleans:
        """Return whether each change lies above its partition's mark, and in no snapshot older than the table's."""
        headers, marks = self._headers, self._rule.marks
        unpassed = self._lies_above(mark_ranks(headers, marks))
        if marks.snapshot is not None:
            shown = headers.positions.rank_of(marks.snapshot.position)
            ranks = headers.positions.ranks
            unpassed &= ~(headers.in_snapshot & (ranks > 0) & (ranks < shown))
        return unpassed

    def _lies_above(self, marks: Integers) -> Booleans:
        """Return whether each change lies above its mark, or on it as a row of the same snapshot; true if either is unknown."""
        ranks = self._headers.positions.ranks
        is_same = self._headers.in_snapshot & (ranks == marks)
        lies_above: Booleans = (ranks == 0) | (marks == 0) | (ranks > marks) | is_same
        return lies_above

    def _highest_earlier_of_key(self, counts: Booleans) -> Integers:
        ranks = np.where(counts, self._headers.positions.ranks, 0)
        return self._by_key.by_row(self._by_key.highest_before(ranks[self._by_key.rows]))

    def _last_of_key(self, deciding: Booleans) -> Booleans:
        rows = self._by_key.rows
        ends = np.flatnonzero(np.roll(self._by_key.begins, -1))
        last = self._by_key.last(deciding[rows])[ends]
        wins = np.zeros(len(rows), bool)
        wins[rows[last[last >= 0]]] = True
        return wins


def mark_ranks(headers: Headers, marks: Marks) -> Integers:
    """Return, for each change, the rank of its partition's high-water mark; 0 without one."""
    partitions, index = np.unique(headers.partition, return_inverse=True)
    passed = (marks.passed.get(partition) for partition in partitions.tolist())
    ranks = [0 if position is None else headers.positions.rank_of(position) for position in passed]
    return np.array(ranks, np.int64)[index]


def _in_order_of_application(headers: Headers, *, by_position: bool) -> Groups:
    """Put the changes of each key in order: by offset, and by position if they are in several partitions.

    Messages of one key are normally in one partition, where the offset orders them; otherwise this is at least one fixed order.
    """
    if not by_position:
        return Groups.by(headers.key, headers.offset, headers.partition)
    of_partition = Groups.by(headers.key, headers.partition, headers.offset)
    places = of_partition.by_row(_places(headers, of_partition))
    return Groups.by(headers.key, places, headers.offset, headers.partition)


def _places(headers: Headers, of_key: Groups) -> Integers:
    """Rank changes of keys in several partitions; a change without a position follows its predecessor in its partition."""
    partition, ranks = headers.partition[of_key.rows], headers.positions.ranks[of_key.rows]
    begins = of_key.begins.copy()
    begins[1:] |= partition[1:] != partition[:-1]
    neighbor = Groups(of_key.rows, np.cumsum(begins)).last(ranks > 0)
    places = np.where(neighbor >= 0, ranks[neighbor], 0)
    number = np.cumsum(of_key.begins) - 1
    is_in_several = np.bincount(number, begins) > 1
    return np.where(is_in_several[number], places, 0)
