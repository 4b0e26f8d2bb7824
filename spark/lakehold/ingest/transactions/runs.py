"""Finds the runs of each partition: one engine in Arrow and NumPy, for few records and for many.

An END counts what its connector sent since it began the transaction, which it numbers from 1. A connector that was restarted
meanwhile may go on after what it had sent: it numbers the rest from 1 again, and END counts the rest. So the events that an END
counts are, of each topic, from the last one in the upstream's log back to where the numbers cease to fall; of those sent twice
the last sending. What was sent before the restart lies below them. As long as nothing of the rest has come of a topic, what was
sent of it before is counted instead: no message tells them apart, so such a transaction is judged when all has come that was
sent before its END (`completeness.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehold.ingest.transactions.columns import (
    Flags,
    Numbers,
    are_true,
    differ,
    filled,
    highest_before,
    numbered,
    ranks,
)
from lakehold.ingest.transactions.headers import POSITION, Kind
from lakehold.ingest.transactions.ids import UNKNOWN, places_of
from lakehold.model.marks import Position
from lakehold.model.offsets import TopicPartition
from lakehold.model.places import POSTGRES_ID, WAL

KINDS = tuple(Kind)
EVENTS, SNAPSHOT, SNAPSHOT_END, UNREADABLE = map(
    KINDS.index, (Kind.EVENTS, Kind.SNAPSHOT, Kind.SNAPSHOT_END, Kind.UNREADABLE)
)


@dataclass(frozen=True)
class Runs:
    """Runs as columns, by partition in the order of offsets.

    A run is consecutive records of one partition: events of one transaction in their order, rows of one snapshot, or unreadable
    ones.

    Args:
        partitions: The columns have their numbers; all that are judged, also those without a run.
        partition: Number of the partition.
        kind: Number in `KINDS`.
        first: Offset of the first record.
        last: Offset of the last one.
        records: How many records.
        sent_ms: When the last one was sent (epoch milliseconds).
        transaction: Of events: the number of the transaction; -1 of what is none.
        id: ... as its last event names it.
        log: ... the number of the log in which it commits; -1: unknown.
        at: ... where, as columns (`lakehold.ingest.transactions.ids`).
        has_position: The position of the last record is known, which is that of its snapshot if it is one of its rows.
        position: ... as four columns, see `lakehold.ingest.position`.
        new: ... how many stand in no earlier run.
        counted: ... how many of them the transaction's END counts.
        commits: ... it is one that commits by itself, and so is all of its transaction: that has a BEGIN and no END.
    """

    partitions: Sequence[TopicPartition]
    partition: Numbers
    kind: Numbers
    first: Numbers
    last: Numbers
    records: Numbers
    sent_ms: Numbers
    transaction: Numbers
    id: pa.Array
    log: Numbers
    at: Numbers
    has_position: Flags
    position: Numbers
    new: Numbers
    counted: Numbers
    commits: Flags

    @property
    def is_event(self) -> Flags:
        """Mark runs of events."""
        found: Flags = self.kind == EVENTS
        return found

    @property
    def is_placed_snapshot(self) -> Flags:
        """Mark runs of snapshots of which it is known where they stand upstream."""
        found: Flags = np.isin(self.kind, (SNAPSHOT, SNAPSHOT_END)) & self.has_position
        return found

    @property
    def placed(self) -> Runs:
        """Return the runs of which it is known where their transactions commit."""
        return self.where(self.log != UNKNOWN)

    def where(self, kept: Flags) -> Runs:
        """Return some of the runs."""
        columns = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("partitions", "id")
        }
        mask = pa.array(kept)
        return replace(self, id=self.id.filter(mask), **{name: column[..., kept] for name, column in columns.items()})

    def of(self, number: int) -> slice:
        """Return where the runs of a partition stand, by its number."""
        return slice(*np.searchsorted(self.partition, [number, number + 1]).tolist())

    def position_of(self, row: int) -> Position:
        """Return the position of a run."""
        a, b, c, d = self.position[:, row].tolist()
        return (a, b, c, d)


def runs_of(
    headers: pa.Table, transaction: Numbers, names: pa.Array, logs: dict[str, int], partitions: Sequence[TopicPartition]
) -> Runs:
    """Find the runs of each partition.

    Args:
        headers: `HEADERS`, in any order.
        transaction: Of each of them the number of the transaction; -1 of what is no event.
        names: The transactions.
        logs: See `places_of`.
        partitions: Those of the headers, and maybe others.
    """
    found = _Headers.of(headers, transaction, partitions)
    events = _events(found, len(names))
    new, counted = np.zeros((2, found.count), bool)
    new[events.rows], counted[events.rows] = events.are_new, events.are_counted
    first = np.flatnonzero(found.begins)
    last = np.append(first[1:], found.count) - 1 if len(first) else first
    at_last, position = found.table.take(pa.array(last)), found.position[:, last]
    has_position, of = found.has_position[last], found.transaction[last]
    log, at = _places(names, logs, of, found.is_postgres[last] & has_position, position)
    offset = found.table["offset"].to_numpy()
    return Runs(
        partitions,
        found.partition[last],
        found.kind[last],
        offset[first],
        offset[last],
        (last - first + 1).astype(np.int32),
        filled(at_last["sent_ms"]),
        of,
        at_last["transaction_id"].combine_chunks(),
        log,
        at,
        has_position,
        position,
        _sums(new, first),
        _sums(counted, first),
        are_true(at_last["commits"]),
    )


def _sums(flags: Flags, first: Numbers) -> Numbers:
    return np.add.reduceat(flags, first, dtype=np.int32) if len(first) else first


def _places(
    names: pa.Array, logs: dict[str, int], transaction: Numbers, is_postgres: Flags, position: Numbers
) -> tuple[Numbers, Numbers]:
    """Find where transactions of runs commit: PostgreSQL's behind the commit before them, others as their ids say."""
    log_of_name, at_of_name = places_of(names, logs)
    log, at = np.full(len(transaction), UNKNOWN, np.int16), np.zeros((len(at_of_name), len(transaction)), np.int64)
    is_event = transaction >= 0
    log[is_event], at[:, is_event] = log_of_name[transaction[is_event]], at_of_name[:, transaction[is_event]]
    if is_postgres.any():
        log[is_postgres] = logs.setdefault(WAL, len(logs))
        at[0, is_postgres] = position[0, is_postgres] + 1
    return log, at


@dataclass(frozen=True)
class _Headers:
    """Headers by partition in the order of offsets, as columns: arrays of one length.

    Args:
        table: The same as a table.
        partition: Number of the partition.
        topic: Number of its topic.
        transaction: Number of the transaction; -1 of what is no event.
        is_postgres: Its id is one of PostgreSQL.
        kind: Number of the kind.
        order: `total_order`, 0 where it is null.
        number: `collection_order`, the same.
        has_position: Its position is known.
        position: Four columns in one array, 0 where it is unknown.
    """

    table: pa.Table
    partition: Numbers
    topic: Numbers
    transaction: Numbers
    is_postgres: Flags
    kind: Numbers
    order: Numbers
    number: Numbers
    has_position: Flags
    position: Numbers

    @classmethod
    def of(cls, headers: pa.Table, transaction: Numbers, partitions: Sequence[TopicPartition]) -> _Headers:
        """Sort `HEADERS`, and number what they name."""
        topics, topic = numbered(headers["topic"])
        numbers = {name: number for number, name in enumerate(topics.to_pylist())}
        width = max((tp.partition for tp in partitions), default=0) + 1
        # By topic and partition in one number.
        place = topic.astype(np.int64) * width + headers["partition"].to_numpy()
        known = np.array([numbers.get(tp.topic, -1) * width + tp.partition for tp in partitions], np.int64)
        by_place = np.argsort(known)
        partition = by_place[np.searchsorted(known, place, sorter=by_place)] if len(place) else place
        order = np.lexsort((headers["offset"].to_numpy(), partition))
        if (order[1:] < order[:-1]).any():
            headers, partition, topic, transaction = (
                headers.combine_chunks().take(pa.array(order)),
                partition[order],
                topic[order],
                transaction[order],
            )
        kinds, kind = numbered(headers["kind"])
        position = [headers[name] for name in POSITION]
        return cls(
            headers,
            partition.astype(np.int32),
            topic,
            transaction,
            are_true(pc.match_substring_regex(headers["transaction_id"], POSTGRES_ID)),
            np.array([KINDS.index(Kind(name)) for name in kinds.to_pylist()], np.int8)[kind] if len(kind) else kind,
            filled(headers["total_order"]),
            filled(headers["collection_order"]),
            are_true(position[0].is_valid()),
            np.stack([filled(column) for column in position]),
        )

    @property
    def count(self) -> int:
        """Return how many there are."""
        return len(self.partition)

    @cached_property
    def begins(self) -> Flags:
        """Mark the headers that are the first of a run."""
        is_event = self.transaction >= 0
        begin = differ(self.partition, self.kind, self.transaction)
        begin[1:] |= is_event[1:] & (self.order[1:] <= self.order[:-1])
        return begin | (~is_event & differ(self.has_position, *self.position))


@dataclass(frozen=True)
class _Events:
    """The events among headers, in the same order, as columns: arrays of one length.

    Args:
        rows: Where each stands among the headers.
        partition: Number of the partition.
        sender: Number of partition and transaction together.
        group: Number of topic and transaction together.
        order: See `_Headers`.
        number: See `_Headers`.
        place: Rank in the upstream's log, however often it was sent and numbered; -1: unknown.
    """

    rows: Numbers
    partition: Numbers
    sender: Numbers
    group: Numbers
    order: Numbers
    number: Numbers
    place: Numbers

    @cached_property
    def are_new(self) -> Flags:
        """Mark events whose number is above all earlier ones of the transaction in the partition."""
        rank, by_sender = ranks(self.number), self._by_sender
        above = np.empty(len(rank), bool)
        above[by_sender] = rank[by_sender] > highest_before(self.sender[by_sender], rank[by_sender])
        return above & (self.number > 0)

    @property
    def are_counted(self) -> Flags:
        """Mark the events that ENDs count; where the place in the upstream's log is unknown, events with new numbers."""
        counted = self.are_new & (self.place < 0)
        rows = np.flatnonzero(self._are_last_sent)
        # The last one in the log first. Ties have a fixed order, so that each look at the same records finds the same.
        step = self.place[rows] * (len(self.rows) + 1) + ranks(self.number)[rows]
        rows = rows[np.lexsort((-rows, self.partition[rows], -step, self.group[rows]))]
        group, number = self.group[rows], self.number[rows]
        begins = differ(group)
        rises = np.zeros(len(rows), np.int64)
        rises[1:] = (number[1:] >= number[:-1]) & ~begins[1:]
        risen = np.cumsum(rises)
        counted[rows] = risen == risen[np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))]
        return counted

    @property
    def _are_last_sent(self) -> Flags:
        """Mark events whose place is known and which stand in no later sending of their partition."""
        by_sender, count = self._by_sender, len(self.rows)
        sender, order, place = self.sender[by_sender], self.order[by_sender], self.place[by_sender]
        again = np.zeros(count, bool)
        again[1:] = ~differ(sender)[1:] & (order[1:] <= order[:-1]) & (place[1:] >= 0)
        depth = np.where(again, count - place, 0)
        # Backwards: whatever stands at or above the lowest place of a later sending is in that sending.
        deepest_later = highest_before(sender[::-1], depth[::-1])[::-1]
        last = np.empty(count, bool)
        last[by_sender] = (place >= 0) & (count - place > deepest_later)
        return last

    @cached_property
    def _by_sender(self) -> Numbers:
        return np.argsort(self.sender, kind="stable")


def _events(headers: _Headers, names: int) -> _Events:
    rows = np.flatnonzero(headers.transaction >= 0)
    transaction = headers.transaction[rows]
    return _Events(
        rows,
        headers.partition[rows],
        headers.partition[rows].astype(np.int64) * names + transaction,
        headers.topic[rows].astype(np.int64) * names + transaction,
        headers.order[rows],
        headers.number[rows],
        _ranks_in_log(headers, rows),
    )


def _ranks_in_log(headers: _Headers, rows: Numbers) -> Numbers:
    """Rank events by where they stand in the upstream's log: of PostgreSQL's position one number, as it has the order."""
    a, b, c, _ = headers.position[:, rows]
    is_postgres = headers.is_postgres[rows]
    rank = ranks(np.where(is_postgres, 0, a), b, np.where(is_postgres, 0, c))
    return np.where(headers.has_position[rows], rank, -1)
