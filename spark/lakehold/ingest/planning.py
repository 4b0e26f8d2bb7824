"""What a reader's next batch reads, bounded by records and bytes. Nothing is changed by it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from lakehold.ingest.arriving import Arriving
from lakehold.ingest.read.reader import Available, Limits, Reader, ReadPlan
from lakehold.ingest.transactions.waiting import Blocked
from lakehold.model.offsets import Offsets, Watermarks, starts
from lakehold.model.passed import NOTHING_PASSED, Passed, Replaced
from lakehold.model.readers import ReaderState

_ALL = Limits(sys.maxsize, sys.maxsize, record_bytes=1)
"""All there is; with the size of a record nobody reads one to know it."""


@dataclass(frozen=True)
class Planned:
    """A batch to be.

    Attributes:
        plan: What it reads.
        fully_read: Topics that it reads to the end, as far as they went when the ends were fetched.
        ends: Where (exclusive) the partitions ended then.
        past_snapshots: Of each partition the offset below which it leaves no row of a snapshot unread.
        transactions: What has been taken of upstream's transactions when it is done (`lakehold.ingest.transactions`).
        has_news: It reads something for tables, and not only what says that nothing happened to them.
        is_last: Of what there was nothing more can be taken now.
        blocked: The transaction that keeps what is behind the batch waiting.
        waiting: Topics with events behind it.
        fetch_again_ms: When a further look tells whether more of what has come can be taken (epoch milliseconds); None: it does
            not depend on time.
        replaced: The re-snapshot that it has all of.
    """

    plan: ReadPlan
    fully_read: frozenset[str]
    ends: Offsets
    past_snapshots: Offsets
    transactions: Passed = NOTHING_PASSED
    has_news: bool = True
    is_last: bool = False
    blocked: Blocked | None = None
    waiting: frozenset[str] = frozenset()
    fetch_again_ms: int | None = None
    replaced: Replaced | None = None

    @classmethod
    def of(cls, plan: ReadPlan, available: Available) -> Planned:
        """Return a plan with what it says about topics and their snapshots."""
        ends = ends_of(available)
        unread = {tp.topic for tp, end in ends.items() if plan.position.get(tp, 0) < end}
        return cls(plan, available.topics - unread, ends, plan.position, has_news=bool(plan.ranges))


@dataclass(frozen=True)
class Planner:
    """The planner of a source's batches.

    Args:
        reader: Where records come from.
        limits: How large batches may be.
    """

    reader: Reader
    limits: Limits

    def plan(self, state: ReaderState, available: Available, arriving: Arriving) -> Planned:  # noqa: ARG002
        """Plan the next batch of `main`.

        Args:
            state: Where it stands.
            available: What there is.
            arriving: Reads what the end of a batch depends on.
        """
        plan = self.reader.plan(available, state.position, self.limits)
        return Planned.of(plan, available)

    def plan_behind(
        self,
        state: ReaderState,
        main: ReaderState,
        available: Available,
        limits: Limits,
        arriving: Arriving,  # noqa: ARG002
    ) -> Planned:
        """Plan the next batch of tables that catch up: nothing that `main` has not read of the same partitions.

        Args:
            state: Where they stand.
            main: Where `main` stands.
            available: What there is of their topics.
            limits: How large the batch may be, instead of those of `main`.
            arriving: See `plan`.
        """
        plan, own = self._behind(state, main, available, limits)
        return replace(Planned.of(plan, own), ends=ends_of(available))

    def catch_up_range(self, state: ReaderState, main: ReaderState, available: Available) -> tuple[Offsets, Offsets]:
        """Return where the partitions begin that tables catch up with, and where what there is of them ends now.

        Takes what `plan_behind` takes.
        """
        own = clipped(available, main.position)
        plan = self.reader.plan(own, state.position, _ALL)
        begins = {**plan.position, **starts(plan.ranges)}
        ends = {tp: min(at, main.position.get(tp, at)) for tp, at in plan.position.items()}
        of_topics = {tp for tp in ends if tp.topic in available.topics}
        return {tp: begins[tp] for tp in of_topics}, {tp: ends[tp] for tp in of_topics}

    def is_ahead(self, state: ReaderState, main: ReaderState) -> bool:  # noqa: ARG002 - for whole transactions
        """Return whether tables that catch up must wait for `main`: it can only be where they are, or further."""
        return False

    def plan_again(self, state: ReaderState, ends: Offsets, transactions: Passed, available: Available) -> Planned:
        """Plan a batch that was begun before, with its own ends."""
        plan = self.reader.plan_to(available, state.position, ends)
        return replace(Planned.of(plan, available), transactions=transactions)

    def _behind(
        self, state: ReaderState, main: ReaderState, available: Available, limits: Limits
    ) -> tuple[ReadPlan, Available]:
        own = clipped(available, main.position)
        plan = self.reader.plan(own, state.position, limits)
        ends = {tp: min(at, main.position.get(tp, at)) for tp, at in plan.position.items()}
        beyond = any(at < plan.position[tp] for tp, at in ends.items())
        return (self.reader.plan_to(own, state.position, ends) if beyond else plan), own


def ends_of(available: Available) -> Offsets:
    """Return where (exclusive) partitions end."""
    return {tp: marks.end_exclusive for tp, marks in available.partitions.items()}


def clipped(available: Available, limit: Offsets) -> Available:
    """Return what was fetched, no further than `limit`, where that names a partition."""
    clipped = {
        tp: Watermarks(marks.earliest, min(marks.end_exclusive, limit.get(tp, marks.end_exclusive)))
        for tp, marks in available.partitions.items()
    }
    return replace(available, partitions=clipped)
