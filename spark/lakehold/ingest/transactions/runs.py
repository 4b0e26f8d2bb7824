"""Groups the headers of a batch into runs: consecutive events of one transaction in one partition.

The headers are facts about each record (`record_headers.py`). The rest of the package compares runs instead of records to find
which transactions are complete. It computes on Arrow and NumPy columns, for few records and for many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakehold.ingest.envelope.header_columns import Kind
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
from lakehold.ingest.transactions.ids import UNKNOWN, positions_of
from lakehold.ingest.transactions.record_headers import POSITION
from lakehold.model.high_water_marks import Position
from lakehold.model.log_positions import POSTGRES_ID, WAL
from lakehold.model.offsets import TopicPartition

KINDS = tuple(Kind)
"""The kinds of records in the order of their numbers."""
EVENTS, SNAPSHOT, SNAPSHOT_END, UNREADABLE = map(
    KINDS.index, (Kind.EVENTS, Kind.SNAPSHOT, Kind.SNAPSHOT_END, Kind.UNREADABLE)
)


@dataclass(frozen=True)
class Runs:
    """A list of runs, as columns by partition in the order of offsets.

    A run is consecutive records of one partition: events of one transaction in their order, rows of one snapshot, or unreadable
    records.

    Args:
        partitions: The partitions, to whose numbers the columns refer; some may have no run.
        partition: Number of the partition.
        kind: Number in `KINDS`.
        first: Offset of the first record.
        last: Offset of the last one.
        records: Number of records.
        sent_ms: When the last one was sent (epoch milliseconds).
        transaction: For events, the number of the transaction; -1 for others.
        id: For events, the transaction's id as the last one writes it.
        log: For events, the number of the upstream log in which the transaction commits (MySQL and MariaDB can have several);
            -1: unknown.
        at: For events, the log position of the commit, as columns (`lakehold.ingest.transactions.ids`).
        has_position: Whether the position of the last record is known; a snapshot's rows share its position.
        position: That position, as four columns, see `lakehold.ingest.envelope.position`.
        new: How many of its events are in no earlier run: the others are repeats that a restarted connector sent again.
        commits: Whether it is an event that commits by itself; its transaction has a BEGIN, this event and no END.
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
    commits: Flags

    @property
    def is_event(self) -> Flags:
        """Mark runs of events."""
        found: Flags = self.kind == EVENTS
        return found

    @property
    def is_positioned_snapshot(self) -> Flags:
        """Mark runs of snapshots whose upstream position is known."""
        found: Flags = np.isin(self.kind, (SNAPSHOT, SNAPSHOT_END)) & self.has_position
        return found

    @property
    def with_known_commit(self) -> Runs:
        """Return the runs of events whose commit's log position is known."""
        return self.where(self.log != UNKNOWN)

    def where(self, kept: Flags) -> Runs:
        """Return the runs that `kept` marks."""
        columns = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("partitions", "id")
        }
        mask = pa.array(kept)
        return replace(self, id=self.id.filter(mask), **{name: column[..., kept] for name, column in columns.items()})

    def of(self, number: int) -> slice:
        """Return the rows of a partition's runs; `number` is that of the partition."""
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
        transaction: The number of each header's transaction; -1 if it is not an event.
        names: The ids of the transactions, by their numbers.
        logs: The numbers of upstream logs, to which new ones are added, see `positions_of`.
        partitions: The partitions of the headers, and perhaps others.
    """
    partition = _partition_of(headers, partitions)
    order = np.lexsort((headers["offset"].to_numpy(), partition))
    if (order[1:] < order[:-1]).any():
        headers, partition, transaction = headers.take(pa.array(order)), partition[order], transaction[order]
    kinds, kind = numbered(headers["kind"])
    kind = np.array([KINDS.index(Kind(name)) for name in kinds.to_pylist()], np.int8)[kind] if len(kind) else kind
    has_position = are_true(headers[POSITION[0]].is_valid())
    position, number = [filled(headers[name]) for name in POSITION], filled(headers["total_order"])
    begins = differ(partition, kind, transaction)
    begins[1:] |= (transaction[1:] >= 0) & (number[1:] <= number[:-1])
    begins |= (transaction < 0) & differ(has_position, *position)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(begins)) - 1 if len(first) else first
    new = _are_new(partition, transaction, filled(headers["collection_order"]), len(names))
    offset, at_last = headers["offset"].to_numpy(), headers.take(pa.array(last))
    has_position, at_position = has_position[last], np.stack([column[last] for column in position])
    id_, transaction = at_last["transaction_id"].combine_chunks(), transaction[last]
    log, at = positions_of(names, logs)
    # The appended log position is for runs that are not events.
    log, at = np.append(log, np.int16(UNKNOWN))[transaction], np.pad(at, ((0, 0), (0, 1)))[:, transaction]
    # PostgreSQL's events contain the LSN of the commit before theirs: the transaction commits at the earliest one above it.
    is_postgres = are_true(pc.match_substring_regex(id_, POSTGRES_ID)) & has_position
    log[is_postgres] = logs.setdefault(WAL, len(logs))
    at[0, is_postgres] = at_position[0, is_postgres] + 1
    return Runs(
        partitions,
        partition[last],
        kind[last],
        offset[first],
        offset[last],
        (last - first + 1).astype(np.int32),
        filled(at_last["sent_ms"]),
        transaction,
        id_,
        log,
        at,
        has_position,
        at_position,
        np.add.reduceat(new, first, dtype=np.int32) if len(first) else first,
        are_true(at_last["commits"]),
    )


def _partition_of(headers: pa.Table, partitions: Sequence[TopicPartition]) -> Numbers:
    """Find the number of the partition of each header."""
    topics, topic = numbered(headers["topic"])
    numbers = {name: number for number, name in enumerate(topics.to_pylist())}
    own = [(number, tp) for number, tp in enumerate(partitions) if tp.topic in numbers]
    found = np.zeros((len(numbers), max((tp.partition for _, tp in own), default=0) + 1), np.int32)
    for number, tp in own:
        found[numbers[tp.topic], tp.partition] = number
    of_headers: Numbers = found[topic, headers["partition"].to_numpy()]
    return of_headers


def _are_new(partition: Numbers, transaction: Numbers, number: Numbers, names: int) -> Flags:
    """Mark events with a higher number than all earlier ones of their transaction and partition."""
    rows = np.flatnonzero(transaction >= 0)
    sender = partition[rows].astype(np.int64) * names + transaction[rows]
    by_sender = np.argsort(sender, kind="stable")
    rows, rank = rows[by_sender], ranks(number[rows])[by_sender]
    found = np.zeros(len(number), bool)
    found[rows] = (rank > highest_before(sender[by_sender], rank)) & (number[rows] > 0)
    return found
