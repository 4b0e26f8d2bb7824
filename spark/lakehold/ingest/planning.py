"""Plans a reader's next batch, bounded by records and bytes. Planning has no effects.

A *reader* is a group of tables of one source that share a position: `main` for those in sync, others for tables that catch up
with `main`. `whole_transactions.py` has the planner for sources whose batches must contain whole upstream transactions.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from lakehold.ingest.arriving_records import ArrivingRecords
from lakehold.ingest.read.reader import FetchedOffsets, Limits, Reader, ReadPlan
from lakehold.ingest.transactions.waiting import Incomplete
from lakehold.model.committed_transactions import NOTHING_COMMITTED, CommittedTransactions, Replaced
from lakehold.model.offsets import Offsets, Watermarks, starts
from lakehold.model.readers import ReaderState

_ALL = Limits(sys.maxsize, sys.maxsize, record_bytes=1)
"""No limits; a given record size saves reading records to estimate it."""


@dataclass(frozen=True)
class Planned:
    """A planned batch.

    Attributes:
        plan: The ranges it reads.
        fully_read: Topics of which it leaves nothing to read: up to the fetched ends, while tables catch up to where `main` is.
        ends: The fetched ends of the partitions (exclusive).
        past_snapshots: For each partition the offset below which it leaves no row of a connector snapshot unread: where the
            batch ends, or later if only events of transactions follow.
        transactions: The committed upstream transactions after the batch (`lakehold.ingest.transactions`).
        has_news: Whether it reads records for tables, and not only those that show that nothing happened to them.
        is_last: Whether no more of the fetched records can be in a batch now.
        incomplete: The incomplete transaction for which everything after the batch waits.
        waiting: Topics with events after the batch.
        fetch_again_ms: When fetching offsets again may show that more of the records can be in a batch (epoch milliseconds);
            None: time does not matter.
        replaced: The re-snapshot (the connector has snapshotted all tables again) that it contains completely.
    """

    plan: ReadPlan
    fully_read: frozenset[str]
    ends: Offsets
    past_snapshots: Offsets
    transactions: CommittedTransactions = NOTHING_COMMITTED
    has_news: bool = True
    is_last: bool = False
    incomplete: Incomplete | None = None
    waiting: frozenset[str] = frozenset()
    fetch_again_ms: int | None = None
    replaced: Replaced | None = None

    @classmethod
    def of(cls, plan: ReadPlan, fetched: FetchedOffsets) -> Planned:
        """Make a planned batch from a plan, and derive from it which topics and snapshots are fully read."""
        ends = ends_of(fetched)
        unread = {tp.topic for tp, end in ends.items() if plan.position.get(tp, 0) < end}
        return cls(plan, fetched.topics - unread, ends, plan.position, has_news=bool(plan.ranges))


@dataclass(frozen=True)
class Planner:
    """The planner of a source's batches, which may end at any record.

    Args:
        reader: Reads records.
        limits: Limits of the batches.
    """

    reader: Reader
    limits: Limits

    def plan(self, state: ReaderState, fetched: FetchedOffsets, arriving: ArrivingRecords) -> Planned:  # noqa: ARG002
        """Plan the next batch of `main`.

        Args:
            state: The state of `main`.
            fetched: The fetched offsets.
            arriving: Reads the records on which the end of a batch depends.
        """
        plan = self.reader.plan(fetched, state.position, self.limits)
        return Planned.of(plan, fetched)

    def plan_catching_up(
        self,
        state: ReaderState,
        main: ReaderState,
        fetched: FetchedOffsets,
        limits: Limits,
        arriving: ArrivingRecords,  # noqa: ARG002
    ) -> Planned:
        """Plan the next batch of tables that catch up, within what `main` has read.

        Partitions that `main` does not read are not limited.

        Args:
            state: The state of their reader.
            main: The state of `main`.
            fetched: The fetched offsets of their topics.
            limits: Limits of the batch, in place of those of `main`.
            arriving: See `plan`.
        """
        plan, own = self._range_of_catching_up(state, main, fetched, limits)
        return replace(Planned.of(plan, own), ends=ends_of(fetched))

    def catch_up_range(self, state: ReaderState, main: ReaderState, fetched: FetchedOffsets) -> tuple[Offsets, Offsets]:
        """Return where tables that catch up begin, and where the records they have to read end now, by partition.

        Takes the arguments of `plan_catching_up`.
        """
        own = clipped(fetched, main.position)
        plan = self.reader.plan(own, state.position, _ALL)
        begins = {**plan.position, **starts(plan.ranges)}
        ends = {tp: min(at, main.position.get(tp, at)) for tp, at in plan.position.items()}
        of_topics = {tp for tp in ends if tp.topic in fetched.topics}
        return {tp: begins[tp] for tp in of_topics}, {tp: ends[tp] for tp in of_topics}

    def is_ahead(self, state: ReaderState, main: ReaderState) -> bool:  # noqa: ARG002 - for whole transactions
        """Return whether tables that catch up are ahead of `main` and must wait; only with whole transactions they may be."""
        return False

    def plan_again(
        self, state: ReaderState, ends: Offsets, transactions: CommittedTransactions, fetched: FetchedOffsets
    ) -> Planned:
        """Plan a batch again that was begun before, with the ends and the committed transactions that were stored for it."""
        plan = self.reader.plan_to(fetched, state.position, ends)
        return replace(Planned.of(plan, fetched), transactions=transactions)

    def _range_of_catching_up(
        self, state: ReaderState, main: ReaderState, fetched: FetchedOffsets, limits: Limits
    ) -> tuple[ReadPlan, FetchedOffsets]:
        own = clipped(fetched, main.position)
        plan = self.reader.plan(own, state.position, limits)
        ends = {tp: min(at, main.position.get(tp, at)) for tp, at in plan.position.items()}
        beyond = any(at < plan.position[tp] for tp, at in ends.items())
        return (self.reader.plan_to(own, state.position, ends) if beyond else plan), own


def ends_of(fetched: FetchedOffsets) -> Offsets:
    """Return the ends of partitions (exclusive)."""
    return {tp: watermarks.end_exclusive for tp, watermarks in fetched.partitions.items()}


def clipped(fetched: FetchedOffsets, limit: Offsets) -> FetchedOffsets:
    """Limit fetched offsets to `limit`, for the partitions that it names."""
    clipped = {
        tp: Watermarks(watermarks.earliest, min(watermarks.end_exclusive, limit.get(tp, watermarks.end_exclusive)))
        for tp, watermarks in fetched.partitions.items()
    }
    return replace(fetched, partitions=clipped)
