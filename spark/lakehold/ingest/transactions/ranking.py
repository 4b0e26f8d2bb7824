"""Ranks the transactions of an offset range by their commits. Pure.

A rank is the number of a transaction in the order of ENDs in the transaction topic. `completeness.py` finds up to which rank all
transactions are complete, `boundary.py` lets a batch end there.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from lakehold.ingest.transactions.candidate import Candidate
from lakehold.ingest.transactions.columns import Flags, Numbers, compared, last_highest
from lakehold.ingest.transactions.ids import UNKNOWN, positions_of, transactions_of
from lakehold.model.committed_transactions import CommittedTransactions

NO_EVENTS = -1
"""Stands for the rank of runs that are not events."""
COMMITTED = 0
"""The rank of transactions that earlier batches took, whose ENDs were deleted before they were read, or that never end."""


class Ranking:
    """The transactions in the order of their ENDs: rank 1 is the first that no earlier batch committed.

    Args:
        candidate: The offset range.
        committed: The transactions that earlier batches have taken.

    Attributes:
        first_end: The first END of each transaction, by its number, as a row of the boundaries (the range's BEGINs and ENDs); the
            number of these rows if it has none.
        last_end: Its last END: a restarted connector may write several; -1 if it has none.
        rows: The first END of each ranked transaction, as rows of the boundaries, in the order of ranks from 1.
        of_transaction: The rank of each transaction, 0 if it has none.
        of_run: The rank of each run (consecutive events of one transaction in one partition); `count + 1` if the END has not
            arrived, `NO_EVENTS` for rows of snapshots and unreadable records.
        is_abandoned: Marks runs of transactions that never end: the connector began again after them.
    """

    def __init__(self, candidate: Candidate, committed: CommittedTransactions) -> None:
        self._candidate = candidate
        self._committed = committed
        self._logs = {name: number for number, name in enumerate(candidate.logs)}
        boundaries, transactions = candidate.boundaries, candidate.transactions
        ends = np.flatnonzero(boundaries.is_end)
        # The last entry stands for runs without a transaction.
        self.first_end = np.full(transactions + 1, len(boundaries.offset))
        np.minimum.at(self.first_end, boundaries.transaction[ends], ends)
        self.last_end = np.full(transactions + 1, -1)
        np.maximum.at(self.last_end, boundaries.transaction[ends], ends)
        rows = np.sort(self.first_end[self.first_end < len(boundaries.offset)])
        self.rows = rows[~self._precede(boundaries.log[rows], boundaries.at[:, rows], rows, below=0)]
        self.rows = self.rows[~self._have(boundaries.log[self.rows], boundaries.at[:, self.rows])]
        self.of_transaction = np.full(transactions + 1, COMMITTED)
        self.of_transaction[boundaries.transaction[self.rows]] = np.arange(1, self.count + 1)
        self.of_run, self.is_abandoned = self._of_runs()

    @property
    def count(self) -> int:
        """Return the number of ranked transactions, which is the last rank."""
        return len(self.rows)

    @property
    def unended(self) -> Numbers:
        """Return the runs of transactions whose END has not arrived, as rows."""
        return np.flatnonzero(self.of_run > self.count)

    def first_of(self, partition: int) -> int | None:
        """Return the rank of the first run of events in a partition, by its number; None if it has no events."""
        ranks = self.of_run[self._candidate.runs.of(partition)]
        events = ranks[ranks != NO_EVENTS]
        return int(events[0]) if len(events) else None

    @cached_property
    def furthest(self) -> Numbers:
        """Find the highest rank that each partition shows; `count + 1` if it shows a transaction without END."""
        runs = self._candidate.runs
        found = np.zeros(len(runs.partitions), np.int64)
        np.maximum.at(found, runs.partition, self.of_run)
        return found

    @cached_property
    def interrupted(self) -> Flags:
        """Mark, by rank, transactions during which the connector was restarted: they have several BEGINs before an END."""
        boundaries = self._candidate.boundaries
        begins = np.flatnonzero(~boundaries.is_end)
        begins = begins[begins < self.first_end[boundaries.transaction[begins]]]
        counts = np.bincount(boundaries.transaction[begins], minlength=self._candidate.transactions)
        return np.append(False, counts[boundaries.transaction[self.rows]] > 1)

    @cached_property
    def open_begins(self) -> Numbers:
        """Find the rows of BEGINs whose transaction has no END, and is not over without one."""
        boundaries, runs = self._candidate.boundaries, self._candidate.runs
        is_over = self.last_end >= 0
        is_over[runs.transaction[self.of_run == COMMITTED]] = True
        rows = np.flatnonzero(~boundaries.is_end & ~is_over[boundaries.transaction])
        # The BEGIN of a committed transaction may be sent again without its END.
        return rows[~self._have(*positions_of(transactions_of(boundaries.id.take(pa.array(rows))), self._logs))]

    @cached_property
    def after_open(self) -> Numbers:
        """Find the ranks that follow a BEGIN without an END, which may belong to an event that commits by itself."""
        following = np.unique(np.searchsorted(self.rows, self.open_begins)) + 1
        return following[following <= self.count]

    @cached_property
    def before_unended(self) -> int:
        """Find the rank up to which no transaction commits after one that has events and no END."""
        runs, boundaries = self._candidate.runs, self._candidate.boundaries
        found = self.count
        for log in np.unique(runs.log[self.unended]).tolist():
            at = runs.at[:, self.unended[runs.log[self.unended] == log]]
            lowest = at[:, last_highest(-at)].tolist()
            later = (boundaries.log[self.rows] == log) & (compared(boundaries.at[:, self.rows], lowest) >= 0)
            if log != UNKNOWN and later.any():
                found = min(found, int(np.argmax(later)))
        return found

    def _of_runs(self) -> tuple[Numbers, Flags]:
        runs = self._candidate.runs
        ranks = np.where(runs.is_event, self.of_transaction[runs.transaction], NO_EVENTS)
        is_left = ranks == COMMITTED
        is_left &= ~(self._have(runs.log, runs.at) | self._precede(runs.log, runs.at, self.rows, below=1))
        is_abandoned = is_left & self._precede_snapshot()
        ranks[is_left & ~is_abandoned] = self.count + 1
        return ranks, is_abandoned

    def _have(self, log: Numbers, at: Numbers) -> Flags:
        """Mark the log positions of transactions that earlier batches committed."""
        found = np.zeros(len(log), bool)
        for name, number in self._logs.items():
            if name in self._committed.commits:
                found |= (log == number) & (compared(at, self._committed.commits[name]) <= 0)
        return found

    def _precede(self, log: Numbers, at: Numbers, ends: Numbers, below: int) -> Flags:
        """Mark log positions before the known part of a transaction topic whose beginning was deleted before it was first read.

        Args:
            log: The logs of log positions.
            at: The log positions.
            ends: The ENDs that are left, as rows.
            below: 1 to include log positions at the first END of a log.
        """
        found = np.zeros(len(log), bool)
        if self._candidate.transaction_topic in self._committed.cut_off:
            boundaries = self._candidate.boundaries
            for number, row in zip(*np.unique(boundaries.log[ends], return_index=True), strict=True):
                first = boundaries.at[:, ends[row]].tolist()
                found |= (log == number) & (number >= 0) & (compared(at, first) < below)
        return found

    def _precede_snapshot(self) -> Flags:
        """Mark runs after which the connector began again with a snapshot that contains the transaction's effects."""
        runs = self._candidate.runs
        snapshots = runs.position[:, runs.is_positioned_snapshot]
        if not snapshots.shape[1]:
            return np.zeros(len(runs.first), bool)
        return runs.has_position & (compared(runs.position, snapshots[:, last_highest(snapshots)].tolist()) < 0)
