"""Finds a re-snapshot in an offset range: one batch contains all of its rows, as it does with the events of a transaction. Pure.

In a re-snapshot the connector snapshots its tables again, although lakehold's tables can be read already. It shows upstream at
one time, over all tables. Taken in parts it would show tables of different times. A first snapshot may be taken in parts, as its
tables cannot be read before it is complete.

A re-snapshot is over when a sign of that arrives which was sent after it: its last row, or an event or END of a later
transaction. Rows may be written to other partitions later than this sign. All rows have arrived when each partition shows
something later, or was read to its end as of after the sign was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from lakehold.ingest.transactions.candidate import Candidate
from lakehold.ingest.transactions.columns import Flags, compared, last_highest
from lakehold.ingest.transactions.runs import SNAPSHOT_END, UNREADABLE
from lakehold.model.high_water_marks import Position
from lakehold.model.log_positions import WAL, is_in_order_of_positions
from lakehold.model.offsets import Offsets


@dataclass(frozen=True)
class Resnapshot:
    """The rows of a re-snapshot in an offset range, and of re-snapshots before it that the connector abandoned.

    Args:
        candidate: The range.
        first: The upstream position of the first of these snapshots.
        position: The upstream position of the last one, which counts.
    """

    candidate: Candidate
    first: Position
    position: Position

    @cached_property
    def begins(self) -> Offsets:
        """Find for each partition the offset of its first row of these snapshots, or first event after the first one.

        An unreadable record behind all earlier events may be such a row.
        """
        runs = self.candidate.runs
        rows = np.flatnonzero(self._rows(self.first) | self._events_after(self.first) | self._unreadable_at_end)
        numbers, firsts = np.unique(runs.partition[rows], return_index=True)
        offsets = runs.first[rows[firsts]].tolist()
        return {runs.partitions[number]: at for number, at in zip(numbers.tolist(), offsets, strict=True)}

    @property
    def records(self) -> int:
        """Return how many rows have arrived; messages that are no rows may be among them."""
        runs, rows = self.candidate.runs, self._rows(self.first)
        return int((runs.last[rows] - runs.first[rows] + 1).sum())

    @property
    def without_rows(self) -> frozenset[str]:
        """Return the topics of readable tables without a row in it, as far as their messages can be read.

        The rows of a table that joined may have been read before: then the table shows this snapshot already. In a table without
        a key the position that it shows also has the attempt (`lakehold.ingest.deduplicate.change_headers`).
        """
        runs, shown = self.candidate.runs, self.candidate.extent.shown
        having = np.unique(runs.partition[self._rows(self.position) | self._unreadable_before_end]).tolist()
        older = {topic for topic, position in shown.items() if position is None or position[:2] < self.position[:2]}
        return frozenset(older - {runs.partitions[number].topic for number in having})

    @property
    def passed(self) -> frozenset[str]:
        """Return the topics that show an event after it: no partition has a row of it behind such an event."""
        runs = self.candidate.runs
        later = np.unique(runs.partition[self._events_after(self.position)]).tolist()
        return frozenset(runs.partitions[number].topic for number in later)

    @cached_property
    def over_ms(self) -> int | None:
        """Find when the first sign was sent that it is over (epoch milliseconds); None: there is none."""
        runs, boundaries = self.candidate.runs, self.candidate.boundaries
        says = self._events_after(self.position) | (self._rows(self.position) & (runs.kind == SNAPSHOT_END))
        sent_ms = [*runs.sent_ms[says].tolist(), *boundaries.sent_ms[self._ends_after(self.position)].tolist()]
        return min(sent_ms, default=None)

    @property
    def is_whole(self) -> bool:
        """Return whether all of its rows have arrived, and all ENDs of transactions before it."""
        extent, runs = self.candidate.extent, self.candidate.runs
        if self.over_ms is None or extent.is_early(np.array([self.over_ms]))[0]:
            return False
        later = {runs.partitions[n] for n in np.unique(runs.partition[self._events_after(self.position)]).tolist()}
        if self._first_after(self.position) is not None:
            later.add(self.candidate.transaction_topic)
        partitions = {self.candidate.transaction_topic, *runs.partitions}
        return all(tp in later or extent.is_fully_read(tp) for tp in partitions)

    def before(self) -> Candidate:
        """Return the range up to its first row, and without transactions that committed after the first snapshot."""
        candidate, begins = self.candidate, dict(self.begins)
        extent, runs = candidate.extent, candidate.runs
        later = self._first_after(self.first)
        if later is not None:
            begins[candidate.transaction_topic] = later
        stops = {**extent.stops, **begins}
        ends = np.array([stops[tp] for tp in runs.partitions], np.int64)
        return replace(
            candidate,
            extent=replace(extent, stops=stops, unread=extent.unread | begins.keys()),
            runs=runs.where(runs.last < ends[runs.partition]),
            boundaries=candidate.boundaries.between(0, stops.get(candidate.transaction_topic, 0)),
            followed_later=frozenset(self.begins),
        )

    def after(self) -> Candidate:
        """Return the range without transactions that committed before the last snapshot.

        The snapshot contains their effects, also those of transactions that stay incomplete.
        """
        candidate, runs = self.candidate, self.candidate.runs
        stop = candidate.extent.stops.get(candidate.transaction_topic, 0)
        later = self._first_after(self.position)
        return replace(
            candidate,
            runs=runs.where(self._events_after(self.position) | ~runs.is_event | ~runs.has_position),
            boundaries=candidate.boundaries.between(stop if later is None else later, stop),
        )

    def _rows(self, position: Position) -> Flags:
        """Mark runs of snapshots at a position or after it."""
        runs = self.candidate.runs
        return runs.is_positioned_snapshot & (compared(runs.position, position) >= 0)

    @property
    def _unreadable_at_end(self) -> Flags:
        """Mark runs of unreadable records that no event from before the first snapshot follows in their partition."""
        runs = self.candidate.runs
        row = np.arange(len(runs.first))
        last_before = np.full(len(runs.partitions), -1)
        before = runs.is_event & ~self._events_after(self.first)
        np.maximum.at(last_before, runs.partition[before], row[before])
        found: Flags = (runs.kind == UNREADABLE) & (row > last_before[runs.partition])
        return found

    @property
    def _unreadable_before_end(self) -> Flags:
        """Mark runs of unreadable records that may be rows: no event after the last snapshot precedes them in their partition."""
        runs = self.candidate.runs
        row = np.arange(len(runs.first))
        first_after = np.full(len(runs.partitions), len(row))
        after = self._events_after(self.position)
        np.minimum.at(first_after, runs.partition[after], row[after])
        found: Flags = (runs.kind == UNREADABLE) & (row < first_after[runs.partition])
        return found

    def _events_after(self, position: Position) -> Flags:
        """Mark runs of events after a position."""
        runs = self.candidate.runs
        return runs.is_event & runs.has_position & (compared(runs.position, position) > 0)

    def _ends_after(self, position: Position) -> Flags:
        """Mark ENDs after a position, if their log positions show that."""
        boundaries = self.candidate.boundaries
        found = np.zeros(len(boundaries.offset), bool)
        for number, name in enumerate(self.candidate.logs):
            if is_in_order_of_positions(name):
                numbers = position[:1] if name == WAL else position[:2]
                found |= (boundaries.log == number) & (compared(boundaries.at, numbers) > 0)
        return found & boundaries.is_end

    def _first_after(self, position: Position) -> int | None:
        """Find the offset of the first BEGIN or END of a transaction that is known to have committed after a position."""
        candidate = self.candidate
        is_later = np.zeros(candidate.transactions + 1, bool)
        is_later[candidate.runs.transaction[self._events_after(position)]] = True
        is_later[candidate.boundaries.transaction[self._ends_after(position)]] = True
        offsets: list[int] = candidate.boundaries.offset[is_later[candidate.boundaries.transaction]].tolist()
        return offsets[0] if offsets else None


def resnapshot_of(candidate: Candidate) -> Resnapshot | None:
    """Find the rows of snapshots in an offset range that are newer than those of readable tables; None if there are none."""
    runs, is_new = candidate.runs, np.zeros(len(candidate.runs.first), bool)
    for topic, shown in candidate.extent.shown.items():
        numbers = [number for number, tp in enumerate(runs.partitions) if tp.topic == topic]
        of_topic = runs.is_positioned_snapshot & np.isin(runs.partition, numbers)
        is_new |= of_topic if shown is None else of_topic & (compared(runs.position, shown) > 0)
    rows = np.flatnonzero(is_new)
    if not len(rows):
        return None
    positions = runs.position[:, rows]
    lowest, highest = rows[last_highest(-positions)], rows[last_highest(positions)]
    return Resnapshot(candidate, runs.position_of(int(lowest)), runs.position_of(int(highest)))


def shown_by(shown: Iterable[tuple[str, Position | None]]) -> Mapping[str, Position | None]:
    """Return by topic the position of the snapshot that its tables show: the earliest of several, None if a table shows none."""
    found: dict[str, Position | None] = {}
    for topic, position in shown:
        before = found.get(topic, position)
        found[topic] = None if position is None or before is None else min(position, before)
    return found
