"""Ingesting a source: everything that was there when it was called, new and stopped tables included.

A source has a reader `main` for the tables that are read together, and others for those that are behind: created while the
source ran, or stopped by an error. Those catch up to where `main` stands, in batches of their own, and join it at identical
offsets; a table whose cause of stopping is gone so recovers by itself. Meanwhile `main` goes on with what arrives: a backfill is
a temporary reader, which slows nobody (seed "Dynamic resource sharing").
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lakehold.catalog import readers as decide
from lakehold.catalog.batches import BatchStore
from lakehold.catalog.definitions import Entry
from lakehold.catalog.readers import MAIN_READER, ReaderError, Readers, ReaderState, Waiting
from lakehold.definitions import Table
from lakehold.errors import (
    IngestFailed,
    LakeholdError,
    LeaseLost,
    TransactionIncomplete,
    UpstreamError,
    UpstreamUnavailable,
)
from lakehold.ingest.batch import BatchReport, Running, complete, run_batch
from lakehold.ingest.dropped import clear
from lakehold.ingest.membership import begun, identified, joined, split, with_tables
from lakehold.ingest.offsets import Offsets
from lakehold.ingest.pace import Pace
from lakehold.ingest.planning import Planned, Planner
from lakehold.ingest.read.checks import faults
from lakehold.ingest.read.reader import Available, Limits
from lakehold.ingest.transactions.waiting import incomplete, waiting_for
from lakehold.spark_errors import is_sparks, said_by_spark
from lakehold.times import next_timestamp, now_ms

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ingesting:
    """One source being ingested under a lease.

    Args:
        source: Its name.
        running: What its batches take.
        planner: Says what they read.
        idle_ms: A call that finds nothing to read moves the write frontier at most so often. Above 0 the caller calls again and
            again: nothing is waited for.
        transaction_topic: Says which transactions are whole; None: batches end anywhere.
        transaction_timeout_ms: How long a transaction may keep the source waiting.
        object_ids: Gives those of the source's tables as they are defined now.
        confirm_standing: Raises when the source is gone, or a statement changes what is upstream of it right now.
        pause: Waits for so many seconds.
    """

    source: str
    running: Running
    planner: Planner
    idle_ms: int
    transaction_topic: str | None
    transaction_timeout_ms: int
    object_ids: Callable[[], Collection[str]]
    confirm_standing: Callable[[], None]
    pause: Callable[[float], None] = time.sleep

    @property
    def _store(self) -> BatchStore:
        return self.running.store

    @property
    def _owner(self) -> str:
        return self.running.lease.owner

    def drain(self) -> Generator[BatchReport, None, None]:
        """Run the batches that bring every table of the source to what its topics held at the call, one report each.

        A call that finds nothing to read runs one empty batch, which moves the source's write frontier, unless it moved less
        than `idle_ms` ago.
        """
        with self._told():
            available = yield from self._begin()
            behind = [name for name in self._readers() if name != MAIN_READER]
            yield from self._catch_up(behind)
            yield from self._drain_main(self._look() if behind else available)

    def go_on(self) -> Iterator[BatchReport]:
        """Read what arrived for the tables that are read together, for who waits for something else behind a `drain`."""
        with self._told():
            yield from self._drain_main(self._look(), meanwhile=True)

    def fill(self, tables: Collection[str]) -> Iterator[BatchReport]:
        """Run the batches that bring some tables to where `main` stands, which goes on meanwhile, and let them join it.

        Other tables that are behind stay so, unless they share a reader.
        """
        with self._told():
            yield from self._begin()
            behind = [name for name, state in self._readers().items() if not state.tables.keys().isdisjoint(tables)]
            yield from self._catch_up([name for name in behind if name != MAIN_READER])
            in_main = self._readers()[MAIN_READER].tables
            if any(progress.since_ms is None for name, progress in in_main.items() if name in tables):
                yield from self._drain_main(self._look())

    def stand(self) -> None:
        """Tell those that share topics with the source from where its readers read on."""
        readers = self._readers()
        positions: list[Offsets] = [state.position for state in readers.values()]
        begun = {progress.object_id for state in readers.values() for progress in state.tables.values()}
        if any(entry.object_id not in begun for entry in self.running.tables.values()):
            positions.append({})
        self.running.reading.shelf.stands(self.source, positions)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What Spark throws outside of tables, as it does of topics that are deleted while it looks at their transactions."""
        try:
            yield
        except UpstreamError as error:
            if not error.retryable:
                # The topics of a source that is dropped go before its definition does.
                self.confirm_standing()
            raise
        except Exception as error:
            if not is_sparks(error):
                raise
            log.warning("source %s failed", self.source, exc_info=True)
            raise IngestFailed(
                f'source "{self.source}" could not be read',
                detail=said_by_spark(error),
                hint="It is tried again by the next ingest. The whole error is in the log.",
            ) from error

    def _begin(self) -> Generator[BatchReport, None, Available]:
        """Bring readers and tables together, and finish what was begun. Returns what there is now."""
        available = self._look()
        tables = self._leave_dropped()
        self._change(lambda readers: self._identified(self._with_tables(readers, tables), available))
        yield from self._recover(available)
        self._change(lambda readers: self._with_tables(readers, tables))
        yield from self._stop_faulty(available)
        return available

    def _look(self) -> Available:
        topics = {entry.definition.topic for entry in self.running.tables.values()}
        return self.running.reading.reader.look(sorted(self._with_transactions(topics)), self.transaction_topic)

    def _with_transactions(self, topics: Collection[str]) -> set[str]:
        return {*topics, self.transaction_topic} if self.transaction_topic is not None else {*topics}

    def _leave_dropped(self) -> Mapping[str, Entry[Table]]:
        """Read no more for tables that are dropped by now: their next batch would make them again. Returns the others."""
        defined = self.object_ids()
        tables = {name: entry for name, entry in self.running.tables.items() if entry.object_id in defined}
        read = [(name, p.object_id) for state in self._readers().values() for name, p in state.tables.items()]
        gone = [(name, object_id) for name, object_id in read if object_id not in defined]
        for name, object_id in gone:
            clear(self.running.writing, name, object_id)
        if gone:
            self._change(lambda readers: self._with_tables(readers, tables))
        return tables

    def _with_tables(self, readers: Readers, tables: Mapping[str, Entry[Table]]) -> Readers:
        return with_tables(readers, self.source, tables, self.transaction_topic)

    def _topic(self, table: str) -> str:
        return self.running.tables[table].definition.topic

    def _readers(self) -> Readers:
        return self._store.readers(self.source)

    def _change(self, apply: Callable[[Readers], Readers]) -> None:
        readers = self._readers()
        if apply(readers) != readers:
            self._store.change_readers(self.source, self._owner, apply)

    def _recover(self, available: Available) -> Iterator[BatchReport]:
        """Bring batches that a crash left open to their commit, with their own offsets and timestamps.

        Topics of tables that went meanwhile are left out: they may have gone, too, or be others of the same name.
        """
        for state in self._readers().values():
            if state.intent is None:
                continue
            log.info("going on with batch %s of %s", state.intent.mz_timestamp, self.source)
            topics = self._with_transactions({self._topic(table) for table in state.tables})
            own = available.without(available.topics - topics)
            planned = self.planner.plan_again(state, state.intent.end, state.intent.transactions, own)
            yield complete(self.running, state, state.intent, planned, now_ms())

    def _stop_faulty(self, available: Available) -> Iterator[BatchReport]:
        """Stop the tables of topics that contradict what was read of them; the others go on."""
        main = self._readers()[MAIN_READER]
        found = faults(available, main.position, main.topic_ids)
        if self.transaction_topic not in main.topic_ids and self.transaction_topic in available.missing:
            # The connector makes it with its first transaction.
            found = {topic: error for topic, error in found.items() if topic != self.transaction_topic}
        of_no_table = {
            topic: e for topic, e in found.items() if topic not in available.topics - {self.transaction_topic}
        }
        if of_no_table:
            raise next(iter(of_no_table.values()))
        stopped = {name: found[self._topic(name)] for name in main.tables if self._topic(name) in found}
        if not stopped:
            return
        self._change(lambda readers: split(readers, stopped))
        yield self._stop_report(MAIN_READER, stopped)

    def _catch_up(self, names: Collection[str]) -> Iterator[BatchReport]:
        """Bring tables that are behind to where `main` stands, which goes on meanwhile, and let them join.

        Their readers take turns, a batch each: one with little to read does not wait for one with much.
        """
        paces = {name: Pace(self.planner.limits) for name in names}
        going, begins = [*names], True
        while going:
            for name in tuple(going):
                yield from self._drain_main(self._look(), meanwhile=True)
                self._leave_dropped()
                report, goes_on = self._turn(name, paces[name], begins=begins)
                if report is not None:
                    yield report
                if not goes_on:
                    going.remove(name)
            begins = False

    def _turn(self, name: str, pace: Pace, *, begins: bool) -> tuple[BatchReport | None, bool]:
        """What reader `name` does in its turn, and whether it has another."""
        if name not in self._readers():
            return None, False
        try:
            report = self._step(name, pace, begins=begins)
        except (LeaseLost, UpstreamUnavailable):
            raise
        except LakeholdError as error:
            return self._failed(name, error), False
        # They have joined; or one stopped and left for a reader of its own: the last one takes the reader with it.
        return report, report is not None and name not in report.stopped and name in self._readers()

    def _failed(self, name: str, error: LakeholdError) -> BatchReport:
        stop = ReaderError(error.code, error.message, error.detail, error.hint)
        self._change(lambda readers: {**readers, name: replace(readers[name], error=stop)})
        return self._stop_report(name, dict.fromkeys(self._readers()[name].tables, error))

    def _step(self, name: str, pace: Pace, *, begins: bool) -> BatchReport | None:
        """A batch of reader `name`, which joins `main` if it stands level behind it; None: without a batch, or it must wait.

        Args:
            name: The reader.
            pace: How much it reads while others wait for it.
            begins: Whether it is the first of this call: then it is written down how much there is to read.
        """
        # Behind the look that `main` was planned from: all is there of the transactions that `main` has taken.
        newest = self._look()
        state, main = self._readers()[name], self._readers()[MAIN_READER]
        topics = {self._topic(table) for table in state.tables}
        # What has no table in `main` yet goes on as `main` would, and becomes it.
        read = topics if main.position else self._with_transactions(topics)
        own = newest.without(newest.topics - read)
        found = faults(own.without(own.topics - topics), state.position, state.topic_ids)
        stopped = {table: found[self._topic(table)] for table in state.tables if self._topic(table) in found}
        if stopped:
            self._change(lambda readers: split(readers, stopped))
            return self._stop_report(name, stopped)
        if found:
            raise next(iter(found.values()))
        if self.planner.is_ahead(state, main):
            return None
        of_tables = own.without(own.topics - topics)
        if begins:
            stretch = self.planner.stretch(state, main, of_tables)
            self._change(lambda readers: begun(readers, name, *stretch))
        limits = pace.limits if main.tables else self.planner.limits
        began_s = time.monotonic()
        planned = self.planner.plan_behind(state, main, own, limits)
        report = self._run(state, planned) if planned.plan.ranges else None
        if report is not None:
            pace.took(sum(r.end_exclusive - r.start_inclusive for r in planned.plan.ranges), _ms_since(began_s))
        if report is None or self._is_level(name, report, planned, main, own, limits):
            keeps_back = self.running.keeps_back
            self._change(lambda readers: joined(readers, name, of_tables, keeps_back, read))
        return report

    def _is_level(  # noqa: PLR0913 - a reader, its batch, and what to look at behind it
        self, name: str, report: BatchReport, planned: Planned, main: ReaderState, own: Available, limits: Limits
    ) -> bool:
        """Whether reader `name` has nothing more to read behind a batch, as `main` stands: what arrives next is for both.

        Where more than a batch is left it is not looked at, as that may take as long as the next batch's own look.
        """
        if report.stopped or planned.plan.remaining > limits.max_records:
            return False
        return not self.planner.plan_behind(self._readers()[name], main, own, limits).plan.ranges

    def _drain_main(self, available: Available, *, meanwhile: bool = False) -> Iterator[BatchReport]:
        """Read on with `main`; `meanwhile` only what there is for it: an empty batch, and what to say of its end, come last."""
        planned = yield from self._read_on(available, meanwhile=meanwhile)
        if meanwhile or planned is None:
            return
        if planned.look_again_ms is not None and not self.idle_ms:
            # Once: what else keeps it waiting then was sent behind the call.
            self.pause(max(0, planned.look_again_ms - now_ms()) / 1000)
            planned = yield from self._read_on(self._look(), meanwhile=True)
        if planned is not None:
            yield from self._wait(planned)

    def _read_on(self, available: Available, *, meanwhile: bool) -> Generator[BatchReport, None, Planned | None]:
        """The batches of `main` up to what there is. Returns what was planned last; None: it has no tables."""
        if not self._readers()[MAIN_READER].tables:
            return None
        # Tables that caught up have joined since.
        self._change(lambda readers: self._identified(readers, available))
        ran = False
        while True:
            self._leave_dropped()
            state = self._readers()[MAIN_READER]
            if not state.tables:
                return None
            own = available.without(available.topics - self._topics_of_main())
            planned = self.planner.plan(state, own)
            if state.waiting is not None:
                # It may have come, and long batches may lie before the end of them.
                self._note_waiting(planned)
                state = self._readers()[MAIN_READER]
            if not planned.has_news and (ran or meanwhile or self._moved_lately() or self._is_overdue(planned, state)):
                return planned
            report = self._run(state, planned)
            ran = True
            yield report
            if planned.is_last and not report.stopped:
                return planned

    def _wait(self, planned: Planned) -> Iterator[BatchReport]:
        """Keep and tell which transaction keeps the source waiting.

        Raises:
            TransactionIncomplete: It has for too long.
        """
        waiting, error = self._note_waiting(planned)
        if error is not None:
            raise error
        if waiting is not None:
            yield BatchReport(self.source, MAIN_READER, self._last_ms(), 0, waiting=waiting)

    def _note_waiting(self, planned: Planned) -> tuple[Waiting | None, TransactionIncomplete | None]:
        """Keep for what the source waits as a batch was planned, and the error if that takes too long."""
        waiting = self._waiting(planned, self._readers()[MAIN_READER])
        error = incomplete(self.source, waiting) if waiting is not None and self._is_late(waiting) else None
        stop = ReaderError(error.code, error.message, error.detail, error.hint) if error is not None else None
        self._change(
            lambda readers: {**readers, MAIN_READER: replace(readers[MAIN_READER], waiting=waiting, error=stop)}
        )
        return waiting, error

    def _waiting(self, planned: Planned, main: ReaderState) -> Waiting | None:
        if planned.blocked is None:
            return None
        tables = {name: self._topic(name) for name in main.tables}
        return waiting_for(planned.blocked, planned.waiting, tables, main.waiting, now_ms())

    def _is_overdue(self, planned: Planned, main: ReaderState) -> bool:
        """Whether the write frontier must stand still, because something does not come."""
        waiting = self._waiting(planned, main)
        return waiting is not None and self._is_late(waiting)

    def _is_late(self, waiting: Waiting) -> bool:
        return now_ms() - waiting.since_ms >= self.transaction_timeout_ms

    def _moved_lately(self) -> bool:
        last_ms = decide.last_timestamp(self._readers())
        return last_ms is not None and now_ms() - last_ms < self.idle_ms

    def _topics_of_main(self) -> set[str]:
        return self._with_transactions({self._topic(t) for t in self._readers()[MAIN_READER].tables})

    def _identified(self, readers: Readers, available: Available) -> Readers:
        topics = {self._topic(t) for t in readers[MAIN_READER].tables}
        return identified(readers, available, self._with_transactions(topics))

    def _run(self, state: ReaderState, planned: Planned) -> BatchReport:
        timestamp_ms = next_timestamp(decide.last_timestamp(self._readers()))
        return run_batch(self.running, state, planned, timestamp_ms)

    def _stop_report(self, reader: str, stopped: Mapping[str, LakeholdError]) -> BatchReport:
        return BatchReport(self.source, reader, self._last_ms(), 0, stopped=stopped)

    def _last_ms(self) -> int:
        return decide.last_timestamp(self._readers()) or 0


def _ms_since(began_s: float) -> int:
    return round((time.monotonic() - began_s) * 1_000)
