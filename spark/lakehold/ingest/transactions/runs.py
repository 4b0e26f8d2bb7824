"""Finds the runs of each partition: one engine in Arrow and NumPy, for few records and for many.

An END counts what its connector sent since it began the transaction, which it numbers from 1. A connector that was restarted
meanwhile may go on after what it had sent: it numbers the rest from 1 again, and END counts the rest. So the events that an END
counts are, of each topic, from the last one in the upstream's log back to where the numbers cease to fall; of those sent twice
the last sending. What was sent before the restart lies below them. As long as nothing of the rest has come of a topic, what was
sent of it before is counted instead: no message tells them apart, so such a transaction is judged when all has come that was
sent before its END (`arrival.py`).

Each step works on whole columns. Only `Run` objects are made one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehold.ingest.transactions.headers import POSITION
from lakehold.ingest.transactions.ids import transactions_of
from lakehold.ingest.transactions.log import Kind, Run
from lakehold.model.marks import Position
from lakehold.model.offsets import TopicPartition
from lakehold.model.places import WAL, Place, place_of_end

Runs = dict[TopicPartition, list[Run]]

_Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


def runs_of(headers: pa.Table) -> Runs:
    """Find the runs of each partition, in the order of offsets.

    Args:
        headers: `HEADERS`, in any order.
    """
    if not headers.num_rows:
        return {}
    found = _Headers.of(headers)
    events = _events(found)
    new, counted = np.zeros((2, found.count), bool)
    new[events.rows], counted[events.rows] = events.are_new, events.are_counted
    return _runs(found, new, counted)


@dataclass(frozen=True)
class _Headers:
    """Headers by partition in the order of offsets, as columns: arrays of one length.

    Args:
        table: The same as a table.
        partitions: The columns have their numbers.
        transactions: ... the same.
        kinds: ... the same.
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
    partitions: list[TopicPartition]
    transactions: list[str]
    kinds: list[Kind]
    partition: _Numbers
    topic: _Numbers
    transaction: _Numbers
    is_postgres: _Flags
    kind: _Numbers
    order: _Numbers
    number: _Numbers
    has_position: _Flags
    position: _Numbers

    @classmethod
    def of(cls, headers: pa.Table) -> _Headers:
        """Sort `HEADERS`, and number what they name."""
        topics, topic = _numbered(headers["topic"])
        partition = headers["partition"].to_numpy()
        order = np.lexsort((headers["offset"].to_numpy(), partition, topic))
        table, topic, partition = headers.combine_chunks().take(order), topic[order], partition[order]
        begins = _differ(topic, partition)
        ids = table["transaction_id"]
        named = transactions_of(ids)
        transactions, transaction = _numbered(named)
        kinds, kind = _numbered(table["kind"])
        position = [table[name] for name in POSITION]
        return cls(
            table,
            [TopicPartition(topics[t], int(p)) for t, p in zip(topic[begins], partition[begins], strict=True)],
            transactions,
            [Kind(name) for name in kinds],
            np.cumsum(begins) - 1,
            topic,
            transaction,
            _are_true(pc.not_equal(named, ids)),
            kind,
            _filled(table["total_order"]),
            _filled(table["collection_order"]),
            _are_true(position[0].is_valid()),
            np.stack([_filled(column) for column in position]),
        )

    @property
    def count(self) -> int:
        """Return how many there are."""
        return len(self.partition)

    @cached_property
    def begins(self) -> _Flags:
        """Mark the headers that are the first of a run."""
        is_event = self.transaction >= 0
        begin = _differ(self.partition, self.kind, self.transaction)
        begin[1:] |= is_event[1:] & (self.order[1:] <= self.order[:-1])
        return begin | (~is_event & _differ(self.has_position, *self.position))


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

    rows: _Numbers
    partition: _Numbers
    sender: _Numbers
    group: _Numbers
    order: _Numbers
    number: _Numbers
    place: _Numbers

    @cached_property
    def are_new(self) -> _Flags:
        """Mark events whose number is above all earlier ones of the transaction in the partition."""
        rank, by_sender = _ranks(self.number), self._by_sender
        above = np.empty(len(rank), bool)
        above[by_sender] = rank[by_sender] > _highest_before(self.sender[by_sender], rank[by_sender])
        return above & (self.number > 0)

    @property
    def are_counted(self) -> _Flags:
        """Mark the events that ENDs count; where the place in the upstream's log is unknown, events with new numbers."""
        counted = self.are_new & (self.place < 0)
        rows = np.flatnonzero(self._are_last_sent)
        # The last one in the log first. Ties have a fixed order, so that each look at the same records finds the same.
        step = self.place[rows] * (len(self.rows) + 1) + _ranks(self.number)[rows]
        rows = rows[np.lexsort((-rows, self.partition[rows], -step, self.group[rows]))]
        group, number = self.group[rows], self.number[rows]
        begins = _differ(group)
        rises = np.zeros(len(rows), np.int64)
        rises[1:] = (number[1:] >= number[:-1]) & ~begins[1:]
        risen = np.cumsum(rises)
        counted[rows] = risen == risen[np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))]
        return counted

    @property
    def _are_last_sent(self) -> _Flags:
        """Mark events whose place is known and which stand in no later sending of their partition."""
        by_sender, count = self._by_sender, len(self.rows)
        sender, order, place = self.sender[by_sender], self.order[by_sender], self.place[by_sender]
        again = np.zeros(count, bool)
        again[1:] = ~_differ(sender)[1:] & (order[1:] <= order[:-1]) & (place[1:] >= 0)
        depth = np.where(again, count - place, 0)
        # Backwards: whatever stands at or above the lowest place of a later sending is in that sending.
        deepest_later = _highest_before(sender[::-1], depth[::-1])[::-1]
        last = np.empty(count, bool)
        last[by_sender] = (place >= 0) & (count - place > deepest_later)
        return last

    @cached_property
    def _by_sender(self) -> _Numbers:
        return np.argsort(self.sender, kind="stable")


def _events(headers: _Headers) -> _Events:
    rows = np.flatnonzero(headers.transaction >= 0)
    transaction, names = headers.transaction[rows], len(headers.transactions)
    return _Events(
        rows,
        headers.partition[rows],
        headers.partition[rows] * names + transaction,
        headers.topic[rows] * names + transaction,
        headers.order[rows],
        headers.number[rows],
        _places(headers, rows),
    )


def _places(headers: _Headers, rows: _Numbers) -> _Numbers:
    """Rank events by where they stand in the upstream's log: of PostgreSQL's position one number, as it has the order."""
    a, b, c, _ = headers.position[:, rows]
    is_postgres = headers.is_postgres[rows]
    rank = _ranks(np.where(is_postgres, 0, a), b, np.where(is_postgres, 0, c))
    return np.where(headers.has_position[rows], rank, -1)


def _runs(headers: _Headers, new: _Flags, counted: _Flags) -> Runs:
    """Make the runs of each partition; `new` and `counted` say of each header whether it is."""
    first = np.flatnonzero(headers.begins)
    last = np.append(first[1:], headers.count) - 1
    at_last = headers.table.take(last)
    names = [*headers.transactions, ""]
    transactions = [names[number] for number in headers.transaction[last].tolist()]
    columns = zip(*headers.position[:, last].tolist(), headers.has_position[last].tolist(), strict=True)
    positions = [(a, b, c, d) if is_known else None for a, b, c, d, is_known in columns]
    fields = (
        [headers.kinds[number] for number in headers.kind[last].tolist()],
        headers.table["offset"].to_numpy()[first].tolist(),
        at_last["offset"].to_pylist(),
        (last - first + 1).tolist(),
        positions,
        at_last["sent_ms"].fill_null(0).to_pylist(),
        transactions,
        at_last["transaction_id"].fill_null("").to_pylist(),
        _places_of(transactions, headers.is_postgres[last].tolist(), positions),
        np.add.reduceat(new, first, dtype=np.int64).tolist(),
        np.add.reduceat(counted, first, dtype=np.int64).tolist(),
        at_last["commits"].fill_null(False).to_pylist(),
    )
    runs = list(map(Run, *fields))
    bounds = np.searchsorted(headers.partition[first], np.arange(len(headers.partitions) + 1)).tolist()
    return {tp: runs[bounds[n] : bounds[n + 1]] for n, tp in enumerate(headers.partitions)}


def _places_of(
    transactions: Sequence[str], are_postgres: Sequence[bool], positions: Sequence[Position | None]
) -> list[Place | None]:
    """Return where transactions stand (`places.place_of_event`), each place made once."""
    by_id = cache(place_of_end)
    by_commit = cache(lambda commit: Place(WAL, (commit + 1,)))
    return [
        by_id(transaction) if not is_postgres else None if position is None else by_commit(position[0])
        for transaction, is_postgres, position in zip(transactions, are_postgres, positions, strict=True)
    ]


def _numbered(texts: pa.ChunkedArray) -> tuple[list[str], _Numbers]:
    """Return distinct texts, and of each text its number among them; -1 of null."""
    encoded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    encoded = encoded.combine_chunks()
    names: list[str] = encoded.dictionary.to_pylist()
    return names, encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _filled(numbers: pa.ChunkedArray) -> _Numbers:
    filled: _Numbers = numbers.fill_null(0).to_numpy()
    return filled


def _are_true(flags: pa.ChunkedArray) -> _Flags:
    found: _Flags = flags.fill_null(False).to_numpy()
    return found


def _differ(*columns: npt.NDArray[Any]) -> _Flags:
    """Mark rows that differ from the one before in some column; the first does."""
    differ = np.zeros(len(columns[0]), bool)
    differ[:1] = True
    for column in columns:
        differ[1:] |= column[1:] != column[:-1]
    return differ


def _ranks(*columns: _Numbers) -> _Numbers:
    """Rank rows from 0, compared by the columns from the left; equal ones have one rank."""
    order = np.lexsort(columns[::-1])
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(_differ(*(column[order] for column in columns))) - 1
    return ranks


def _highest_before(groups: _Numbers, values: _Numbers) -> _Numbers:
    """Find for each row the highest value (0 or more) of earlier rows of its group; -1 where there is none.

    Args:
        groups: Rows of one group stand together.
        values: Below the number of rows, or equal to it.
    """
    lifted = (np.cumsum(_differ(groups)) - 1) * (len(groups) + 2)
    highest = np.zeros(len(groups), np.int64)
    highest[1:] = np.maximum.accumulate(lifted + values + 1)[:-1]
    return np.maximum(highest - lifted, 0) - 1
