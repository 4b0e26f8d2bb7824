"""Lets new and stopped tables catch up: they read batches of their own until they reach the offsets of `main`, and join it.

`main` is the reader of the tables that are in sync. Tables that catch up have other readers, each with a position of its own;
`source_ingest.py` runs them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from lakehold.errors import LakeholdError, LeaseLost, TableStopped, UpstreamUnavailable
from lakehold.ingest.batch import next_batch, stop, without_batch
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.batch_size import BatchSize
from lakehold.ingest.leased_source import LeasedSource
from lakehold.ingest.membership import joined, with_catch_up_range, without_old_stops
from lakehold.ingest.planning import Planned
from lakehold.ingest.read.reader import FetchedOffsets, Limits
from lakehold.model.committed_transactions import CommittedTransactions
from lakehold.model.readers import MAIN_READER, ReaderError, Readers, ReaderState, TableProgress


@dataclass(frozen=True)
class CatchingUp:
    """The tables of one source that catch up.

    Args:
        of: The source.
        meanwhile: Runs the batches of new records for `main`.
        is_over: Returns whether other sources wait: no reader gets another turn, but each gets one.
    """

    of: LeasedSource
    meanwhile: Callable[[], Iterator[BatchReport]]
    is_over: Callable[[], bool]

    def run(self, names: Collection[str]) -> Iterator[BatchReport]:
        """Bring readers to the position of `main`, which continues meanwhile, and let their tables join it.

        The readers, called `names`, take turns of one batch, so that one with little to read does not wait for one with much.
        """
        batch_sizes = {name: BatchSize(self.of.planner.limits) for name in names}
        going, begins = [*names], True
        while going and (begins or not self.is_over()):
            for name in tuple(going):
                yield from self.meanwhile()
                self.of.leave_dropped()
                report, goes_on = self._turn(name, batch_sizes[name], begins=begins)
                if report is not None:
                    yield report
                if not goes_on:
                    going.remove(name)
            begins = False

    def _turn(self, name: str, batch_size: BatchSize, *, begins: bool) -> tuple[BatchReport | None, bool]:
        """Give reader `name` its turn. Returns its batch, and whether it gets another turn."""
        if name not in self.of.readers():
            return None, False
        try:
            report = self._step(name, batch_size, begins=begins)
        except (LeaseLost, UpstreamUnavailable):
            raise
        except LakeholdError as error:
            return self._failed(name, error), False
        # A reader that no longer exists has joined `main`, or its last table has stopped and moved to a reader of its own.
        return report, report is not None and name not in report.stopped and name in self.of.readers()

    def _failed(self, name: str, error: LakeholdError) -> BatchReport:
        stopped_by = ReaderError.of(error)
        self.of.change(lambda readers: {**readers, name: replace(readers[name], error=stopped_by)})
        return without_batch(self.of, name, stopped=dict.fromkeys(self.of.readers()[name].tables, error))

    def _step(self, name: str, batch_size: BatchSize, *, begins: bool) -> BatchReport | None:
        """Run a batch of reader `name`, and let it join `main` if it is in sync then.

        Returns None if it had nothing to read, or must wait.

        Args:
            name: The reader.
            batch_size: How much it reads while others wait for it.
            begins: Whether this is its first batch in this call: then the range to read is recorded.
        """
        # Fetched after the offsets of `main`'s plan: all events of transactions that `main` has committed are below these.
        newest = self.of.fetch_offsets()
        state, main = self.of.readers()[name], self.of.readers()[MAIN_READER]
        topics = self.of.topics(state)
        # If `main` has no position yet, this reader continues as `main` would, and becomes it.
        read = topics if main.position else self.of.with_transactions(topics)
        own = newest.without(newest.topics - read)
        found = self.of.faults(own.without(own.topics - topics), state)
        stopped = {table: found[self.of.topic(table)] for table in state.tables if self.of.topic(table) in found}
        if stopped:
            return stop(self.of, name, stopped)
        if found:
            raise next(iter(found.values()))
        if self.of.planner.is_ahead(state, main):
            return None
        of_tables = own.without(own.topics - topics)
        if begins:
            catch_up_range = self.of.planner.catch_up_range(state, main, of_tables)
            self.of.change(lambda readers: with_catch_up_range(readers, name, *catch_up_range))
        limits = batch_size.limits if main.tables else self.of.planner.limits
        began_s = time.monotonic()
        planned, report = next_batch(
            self.of,
            state,
            lambda arriving: self.of.planner.plan_catching_up(state, main, own, limits, arriving),
            is_wanted=lambda planned: bool(planned.plan.ranges) or self._deletes_rows(state, planned),
        )
        if report is not None:
            batch_size.took(sum(r.end_exclusive - r.start_inclusive for r in planned.plan.ranges), _ms_since(began_s))
        if report is None or self._is_in_sync(name, report, planned, main, own, limits):
            self._join(name, of_tables, read)
        return report

    def _join(self, name: str, of_tables: FetchedOffsets, read: Collection[str]) -> None:
        """Let the tables of reader `name` join `main`; holds that waited for them begin."""
        before = self.of.readers()[name].tables
        if any(each.stopped_ms is not None and not self.of.snapshots.is_repaired(each) for each in before.values()):
            # Who reads the table now may see rows that no longer exist upstream.
            return
        without_table = {
            table for table, progress in before.items() if progress.since_ms is None and not self._has_table(table)
        }

        def must_stay_unreadable(table: str, progress: TableProgress, transactions: CommittedTransactions) -> bool:
            return table in without_table or self.of.must_stay_unreadable(table, progress, transactions)

        oldest_ms = {table: self.of.oldest_ms(table) for table, progress in before.items() if progress.stops}

        def join(readers: Readers) -> Readers:
            kept = without_old_stops(readers, name, oldest_ms)
            return joined(kept, name, of_tables, must_stay_unreadable, read)

        self.of.change(join)
        in_main = self.of.readers()[MAIN_READER].tables
        self.of.begin_holds(before, {table: in_main[table] for table in before if table in in_main})

    def _deletes_rows(self, state: ReaderState, planned: Planned) -> bool:
        """Return whether a batch without records may have to delete rows.

        A repeated snapshot ends there, or a re-snapshot has no row of a table.
        """
        repeated = self.of.snapshots.repeated
        is_emptied = planned.replaced is not None and bool(planned.replaced.without_rows)
        return is_emptied or any(
            repeated[progress.object_id].is_newly_read(progress, planned.plan.position)
            for progress in state.tables.values()
            if progress.object_id in repeated
        )

    def _has_table(self, name: str) -> bool:
        """Return whether a table exists or need not exist yet.

        A table that cannot be created is stopped by its first batch in `main`.
        """
        try:
            return self.of.has_table(name)
        except TableStopped:
            return False

    def _is_in_sync(  # noqa: PLR0913 - a reader, its batch, and the offsets to compare
        self, name: str, report: BatchReport, planned: Planned, main: ReaderState, own: FetchedOffsets, limits: Limits
    ) -> bool:
        """Return whether reader `name` has reached `main` after a batch, so that both read what arrives next.

        False if more than a batch is left: checking that may take as long as planning the next batch.
        """
        if report.stopped or planned.plan.remaining > limits.max_records:
            return False
        state = self.of.readers()[name]
        with closing(self.of.arriving(state)) as arriving:
            return not self.of.planner.plan_catching_up(state, main, own, limits, arriving).plan.ranges


def _ms_since(began_s: float) -> int:
    return round((time.monotonic() - began_s) * 1_000)
