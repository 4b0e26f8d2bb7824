"""How tables that are behind catch up with those of `main`: in batches of their own, until both stand at the same offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from lakehold.errors import LakeholdError, LeaseLost, TableStopped, UpstreamUnavailable
from lakehold.ingest.batch import BatchReport, next_batch, stop, without_batch
from lakehold.ingest.held_source import HeldSource
from lakehold.ingest.membership import begun, joined
from lakehold.ingest.pace import Pace
from lakehold.ingest.planning import Planned
from lakehold.ingest.read.reader import Available, Limits
from lakehold.model.passed import Passed
from lakehold.model.readers import MAIN_READER, ReaderError, ReaderState, TableProgress


@dataclass(frozen=True)
class CatchingUp:
    """Tables of one source that catch up.

    Args:
        of: The source.
        meanwhile: Runs the batches of what arrives for `main`.
    """

    of: HeldSource
    meanwhile: Callable[[], Iterator[BatchReport]]

    def run(self, names: Collection[str], budget_s: float | None = None) -> Iterator[BatchReport]:
        """Bring tables that are behind to where `main` stands, which goes on meanwhile, and let them join.

        Their readers take turns, a batch each: one with little to read does not wait for one with much.
        Behind `budget_s` nobody has another turn.
        """
        paces = {name: Pace(self.of.planner.limits) for name in names}
        going, begins, began_s = [*names], True, time.monotonic()
        while going and (begins or budget_s is None or time.monotonic() - began_s < budget_s):
            for name in tuple(going):
                yield from self.meanwhile()
                self.of.leave_dropped()
                report, goes_on = self._turn(name, paces[name], begins=begins)
                if report is not None:
                    yield report
                if not goes_on:
                    going.remove(name)
            begins = False

    def _turn(self, name: str, pace: Pace, *, begins: bool) -> tuple[BatchReport | None, bool]:
        """Give reader `name` its turn. Returns its batch, and whether it has another turn."""
        if name not in self.of.readers():
            return None, False
        try:
            report = self._step(name, pace, begins=begins)
        except (LeaseLost, UpstreamUnavailable):
            raise
        except LakeholdError as error:
            return self._failed(name, error), False
        # They have joined; or one stopped and left for a reader of its own: the last one takes the reader with it.
        return report, report is not None and name not in report.stopped and name in self.of.readers()

    def _failed(self, name: str, error: LakeholdError) -> BatchReport:
        stopped_by = ReaderError(error.code, error.message, error.detail, error.hint)
        self.of.change(lambda readers: {**readers, name: replace(readers[name], error=stopped_by)})
        return without_batch(self.of, name, stopped=dict.fromkeys(self.of.readers()[name].tables, error))

    def _step(self, name: str, pace: Pace, *, begins: bool) -> BatchReport | None:
        """Run a batch of reader `name`, and let it join `main` if it is in sync then; None: without a batch, or it must wait.

        Args:
            name: The reader.
            pace: How much it reads while others wait for it.
            begins: Whether it is the first of this call: then it is written down how much there is to read.
        """
        # Behind the look that `main` was planned from: all is there of the transactions that `main` has taken.
        newest = self.of.fetch_offsets()
        state, main = self.of.readers()[name], self.of.readers()[MAIN_READER]
        topics = self.of.topics(state)
        # What has no table in `main` yet goes on as `main` would, and becomes it.
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
            self.of.change(lambda readers: begun(readers, name, *catch_up_range))
        limits = pace.limits if main.tables else self.of.planner.limits
        began_s = time.monotonic()
        planned, report = next_batch(
            self.of,
            state,
            lambda arriving: self.of.planner.plan_behind(state, main, own, limits, arriving),
            is_wanted=lambda planned: bool(planned.plan.ranges),
        )
        if report is not None:
            pace.took(sum(r.end_exclusive - r.start_inclusive for r in planned.plan.ranges), _ms_since(began_s))
        if report is None or self._is_level(name, report, planned, main, own, limits):
            self._join(name, of_tables, read)
        return report

    def _join(self, name: str, of_tables: Available, read: Collection[str]) -> None:
        """Let the tables of reader `name` join `main`; holds that waited for them begin."""
        before = self.of.readers()[name].tables
        without_table = {
            table for table, progress in before.items() if progress.since_ms is None and not self._has_table(table)
        }

        def keeps_back(table: str, progress: TableProgress, transactions: Passed) -> bool:
            return table in without_table or self.of.keeps_back(table, progress, transactions)

        self.of.change(lambda readers: joined(readers, name, of_tables, keeps_back, read))
        in_main = self.of.readers()[MAIN_READER].tables
        self.of.begin_holds(before, {table: in_main[table] for table in before if table in in_main})

    def _has_table(self, name: str) -> bool:
        """Return whether a table exists or needs not to; one that cannot be made is stopped by its first batch in `main`."""
        try:
            return self.of.has_table(name)
        except TableStopped:
            return False

    def _is_level(  # noqa: PLR0913 - a reader, its batch, and what to look at behind it
        self, name: str, report: BatchReport, planned: Planned, main: ReaderState, own: Available, limits: Limits
    ) -> bool:
        """Return whether reader `name` has nothing more to read after a batch, as `main` stands: what arrives next is for both.

        Where more than a batch is left it is not looked at, as that may take as long as the next batch's own look.
        """
        if report.stopped or planned.plan.remaining > limits.max_records:
            return False
        state = self.of.readers()[name]
        with closing(self.of.arriving(state)) as arriving:
            return not self.of.planner.plan_behind(state, main, own, limits, arriving).plan.ranges


def _ms_since(began_s: float) -> int:
    return round((time.monotonic() - began_s) * 1_000)
