"""Deduplicates the changes of one batch to one table, by their headers.

A change *counts* if it is neither a repeat nor an error. The last change of a key that counts is *applied*: it decides the key's
state. Debezium omits some values that did not change. If the applied change lacks such a value, an earlier change of the key
*gives* it.

Pure and vectorized: positions are ranks (0: unknown), keys are numbers, and a rule is a comparison of arrays.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lakehold.ingest.deduplicate.change_headers import Headers
from lakehold.ingest.deduplicate.positions import Booleans, Groups, Integers
from lakehold.model.high_water_marks import HighWaterMarks, Position


@dataclass(frozen=True)
class Rule:
    """The rule by which changes of a table are deduplicated.

    Args:
        skips_applied: Whether changes at or below their partition's high-water mark are repeats; otherwise every change counts.
        by_position: Whether changes of one key may lie in several partitions: then log positions order them, not offsets.
        high_water_marks: The table's high-water marks before the batch.
    """

    skips_applied: bool
    by_position: bool
    high_water_marks: HighWaterMarks


@dataclass(frozen=True)
class Decisions:
    """The decisions on the changes, as arrays of shape `(n,)` in the order of the headers.

    Args:
        counts: The change is neither a repeat nor an error.
        applied: The change decides the state of its key.
    """

    counts: Booleans
    applied: Booleans


class Engine:
    """The deduplication of one batch's changes to one table.

    Args:
        headers: The headers of the changes.
        rule: The rule by which they are deduplicated.
    """

    def __init__(self, headers: Headers, rule: Rule) -> None:
        self._headers = headers
        self._rule = rule
        self._by_key = _in_order_of_application(headers, by_position=rule.by_position)
        self._by_row = _as_sent(headers) if headers.is_multiset else self._by_key

    def deduplicate(
        self, *, truncates: Booleans | None = None, not_below: Position | None = None, are_all_placed: bool = True
    ) -> Decisions:
        """Deduplicate all changes: find those that count, and those that are applied.

        Args:
            truncates: Marks TRUNCATEs: changes before the last one do not count.
            not_below: The position of a re-snapshot: changes before it do not count.
            are_all_placed: Whether the place of a row without a position shows that it is before the re-snapshot. It does if the
                batch has rows of the re-snapshot; otherwise such a row counts.
        """
        counts = self._headers.changes_row | self._headers.is_truncate
        if truncates is not None:
            counts &= ~self._precedes_truncate(truncates)
        if not_below is not None:
            is_after = self._reached >= self._headers.positions.rank_of(not_below)
            counts &= is_after if are_all_placed else is_after | (self._headers.positions.ranks == 0)
        if self._rule.skips_applied:
            counts &= self._is_unapplied()
            counts &= self._lies_above(self._highest_earlier_of_row(counts))
        return Decisions(counts, self._last_of_key(counts & self._headers.changes_row))

    def givers(self, decisions: Decisions, columns: Collection[str]) -> Integers:
        """Find, for each value that Debezium omitted from an applied change, the change that gives the value.

        Args:
            decisions: The decisions on the changes.
            columns: The names of the columns to look for; omitted values of other columns get -1.

        Returns:
            `(k,)`, one for each entry of `headers.kept`: the row of the change that gives the value. It is the last change of the
            same key that counts, has the column or deletes the row, and does not come after the applied change. -1: there is
            none, or the change of the entry is not applied.
        """
        kept, rows = self._headers.kept, self._by_key.rows
        rank_of_row = self._by_key.by_row(np.arange(len(rows)))
        givers = np.full(len(kept.rows), -1)
        for code in (code for code, name in enumerate(kept.names) if name in columns):
            of_column = kept.codes == code
            knows = decisions.counts.copy()
            knows[kept.rows[of_column]] = False
            wanting = of_column & decisions.applied[kept.rows]
            found = self._by_key.last(knows[rows])[rank_of_row[kept.rows[wanting]]]
            givers[wanting] = np.where(found >= 0, rows[found], -1)
        return givers

    @cached_property
    def _reached(self) -> Integers:
        """Return the rank of each change; for one without a position, the highest that its partition has reached before it.

        A row of an ad-hoc snapshot has no position. If it is later than a TRUNCATE or a re-snapshot, the partition has an earlier
        change of its key that is later, too: the row was inserted after the TRUNCATE, or the re-snapshot has it.
        """
        headers, ranks = self._headers, self._headers.positions.ranks
        of_partition = Groups.by(headers.partition, headers.offset)
        highest = of_partition.by_row(of_partition.highest(ranks[of_partition.rows]))
        before_batch = high_water_ranks(headers, self._rule.high_water_marks)
        return np.where(ranks > 0, ranks, np.maximum(highest, before_batch))

    def _precedes_truncate(self, truncates: Booleans) -> Booleans:
        """Mark changes before the last of the TRUNCATEs: by position, and without one by what their partition shows."""
        headers, ranks = self._headers, self._headers.positions.ranks
        last = ranks[truncates].max(initial=0)
        partitions, index = np.unique(headers.partition, return_inverse=True)
        offsets = np.full(len(partitions), -1)
        np.maximum.at(offsets, index[truncates], headers.offset[truncates])
        without_position = (self._reached < last) | (headers.offset < offsets[index])
        precedes: Booleans = np.where(ranks > 0, ranks <= last, without_position)
        return precedes

    def _is_unapplied(self) -> Booleans:
        """Mark changes above their partition's high-water mark, without rows of a snapshot older than the one the table shows."""
        headers, high_water_marks = self._headers, self._rule.high_water_marks
        unapplied = self._lies_above(high_water_ranks(headers, high_water_marks))
        if high_water_marks.snapshot is not None:
            shown = headers.positions.rank_of(high_water_marks.snapshot.position)
            ranks = headers.positions.ranks
            unapplied &= ~(headers.in_snapshot & (ranks > 0) & (ranks < shown))
        return unapplied

    def _lies_above(self, limits: Integers) -> Booleans:
        """Mark changes whose rank is above their entry in `limits`; also those whose rank or entry is unknown.

        All rows of a connector snapshot have the same position, so a row of a snapshot may also be equal to its entry.
        """
        ranks = self._headers.positions.ranks
        is_same = self._headers.in_snapshot & (ranks == limits)
        lies_above: Booleans = (ranks == 0) | (limits == 0) | (ranks > limits) | is_same
        return lies_above

    def _highest_earlier_of_row(self, counts: Booleans) -> Integers:
        """Return for each change the highest rank of earlier changes that may be of its row; 0 if there is none.

        Those are the changes of its key, and without keys all changes. Only changes that `counts` marks are compared.
        """
        ranks = np.where(counts, self._headers.positions.ranks, 0)
        return self._by_row.by_row(self._by_row.highest_before(ranks[self._by_row.rows]))

    def _last_of_key(self, candidates: Booleans) -> Booleans:
        """Mark the last change of each key, among those that `candidates` marks."""
        rows = self._by_key.rows
        ends = np.flatnonzero(np.roll(self._by_key.begins, -1))
        last = self._by_key.last(candidates[rows])[ends]
        applied = np.zeros(len(rows), bool)
        applied[rows[last[last >= 0]]] = True
        return applied


def high_water_ranks(headers: Headers, high_water_marks: HighWaterMarks) -> Integers:
    """Return, for each change, the rank of its partition's high-water mark; 0 without one."""
    partitions, index = np.unique(headers.partition, return_inverse=True)
    positions = (high_water_marks.positions.get(partition) for partition in partitions.tolist())
    ranks = [0 if position is None else headers.positions.rank_of(position) for position in positions]
    return np.array(ranks, np.int64)[index]


def _as_sent(headers: Headers) -> Groups:
    """Put all changes into one group, in the order in which they were sent; of an update the delete comes first."""
    all_ = np.zeros(len(headers), np.int64)
    return Groups.by(all_, headers.offset, headers.positions.ranks)


def _in_order_of_application(headers: Headers, *, by_position: bool) -> Groups:
    """Sort the changes of each key in the order in which they apply: by offset, or by position if `by_position`.

    The messages of a key are normally in one partition, where offsets order them. Without positions, the true order of changes in
    several partitions is unknown; this order is at least always the same.
    """
    if not by_position:
        return Groups.by(headers.key, headers.offset, headers.partition)
    of_partition = Groups.by(headers.key, headers.partition, headers.offset)
    places = of_partition.by_row(_places(headers, of_partition))
    return Groups.by(headers.key, places, headers.offset, headers.partition)


def _places(headers: Headers, of_key: Groups) -> Integers:
    """Return the rank of each change whose key lies in several partitions, 0 for the others.

    A change without a position gets the rank of the key's change before it in the same partition.
    """
    partition, ranks = headers.partition[of_key.rows], headers.positions.ranks[of_key.rows]
    begins = of_key.begins.copy()
    begins[1:] |= partition[1:] != partition[:-1]
    neighbor = Groups(of_key.rows, np.cumsum(begins)).last(ranks > 0)
    places = np.where(neighbor >= 0, ranks[neighbor], 0)
    number = np.cumsum(of_key.begins) - 1
    is_in_several = np.bincount(number, begins) > 1
    return np.where(is_in_several[number], places, 0)
