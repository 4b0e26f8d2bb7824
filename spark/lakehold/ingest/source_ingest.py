"""Ingests a source: all records that exist at the call, for all tables, including new and stopped ones.

A source has a reader `main` for the tables that are in sync. Other readers are for tables that are catching up: they were created
while the source ran, or stopped by an error. These read batches of their own up to the position of `main`, and join it at
identical offsets; so a table recovers by itself once the cause of its stop is removed. Meanwhile `main` continues with new
records: a backfill is a temporary reader, which slows down no other table.

The *write frontier* is the first timestamp at which the tables of `main` cannot be read yet. Each batch of `main` moves it, also
an empty one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from lakehold.errors import IngestFailed, TransactionIncomplete, UpstreamError
from lakehold.ingest.batch import next_batch, without_batch
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.catching_up import CatchingUp
from lakehold.ingest.leased_source import LeasedSource
from lakehold.ingest.membership import identified
from lakehold.ingest.planning import Planned
from lakehold.ingest.read.reader import FetchedOffsets
from lakehold.ingest.recovery import recover, stop_faulty, stop_uncaptured
from lakehold.ingest.transactions.waiting import incomplete_error, waiting_for
from lakehold.model.readers import MAIN_READER, ReaderError, Readers, ReaderState, Waiting
from lakehold.spark_errors import advice, described, is_sparks, session_lost
from lakehold.times import now_ms

log = logging.getLogger(__name__)

_MEANWHILE_IDLE_MS = 10_000
"""Interval of empty batches while others catch up: the write frontier of a quiet table does not wait for them."""
_EMPTY_TRANSACTION_IDLE_MS = 500
"""Interval of empty batches that commit transactions without events: a sync point is one, and somebody may wait for it."""


@dataclass(frozen=True, kw_only=True)
class Ingesting(LeasedSource):
    """One source that is ingested under a lease.

    Args:
        idle_ms: The least interval at which calls without new records move the write frontier. Above 0, the caller polls: no call
            waits for anything.
        turn_s: How long a `drain` begins batches, counted from `began_s`; each reader runs one at least, and the next `drain`
            continues. None: until everything is read.
        began_s: When the turn began, by `time.monotonic`.
        transaction_timeout_ms: How long an incomplete transaction may block the source.
        pause: Waits for so many seconds.
    """

    idle_ms: int = 0
    turn_s: float | None = None
    began_s: float = field(default_factory=time.monotonic)
    transaction_timeout_ms: int
    pause: Callable[[float], None] = time.sleep

    @property
    def _catching_up(self) -> CatchingUp:
        return CatchingUp(self, self._meanwhile, self._is_turn_over)

    def drain(self) -> Generator[BatchReport, None, None]:
        """Run the batches that apply everything in the source's topics at the call, or as many as its turn allows.

        Yields one report each. A call that finds nothing to read runs one empty batch, which moves the source's write frontier,
        unless it moved less than `idle_ms` ago.
        """
        with self._errors_reported():
            fetched, stopped = yield from self._begin()
            catching_up = [name for name in self.readers() if name not in {MAIN_READER, *stopped}]
            yield from self._catching_up.run(catching_up)
            yield from self._drain_main(self.fetch_offsets() if catching_up else fetched)
            # A table that was dropped during the last batch may have been created by it.
            self.leave_dropped()

    def go_on(self) -> Iterator[BatchReport]:
        """Read new records for the tables that are in sync, after a `drain` and while the caller waits for something else."""
        with self._errors_reported():
            yield from self._meanwhile()

    def fill(self, tables: Collection[str]) -> Iterator[BatchReport]:
        """Run the batches that bring some tables to the position of `main`, which continues meanwhile, and let them join it.

        Other tables that are not in sync stay so, unless they share a reader.
        """
        with self._errors_reported():
            _, stopped = yield from self._begin()
            catching_up = [name for name, state in self.readers().items() if not state.tables.keys().isdisjoint(tables)]
            yield from self._catching_up.run([name for name in catching_up if name not in {MAIN_READER, *stopped}])
            in_main = self.main().tables
            if any(progress.since_ms is None for name, progress in in_main.items() if name in tables):
                yield from self._drain_main(self.fetch_offsets())
            self.leave_dropped()

    @contextmanager
    def _errors_reported(self) -> Iterator[None]:
        """Translate errors of Spark outside of tables, and keep errors of the upstream with the reader.

        Spark fails, for example, when a topic is deleted while it reads its transactions.
        """
        try:
            yield
        except UpstreamError as error:
            if not error.retryable:
                self.confirm_defined()  # as in `stop`
                stop = ReaderError.of(error)
                self.change(lambda readers: {**readers, MAIN_READER: replace(readers[MAIN_READER], error=stop)})
            raise
        except Exception as error:
            if not is_sparks(error):
                raise
            if lost := session_lost(error):
                raise lost from error
            log.warning("source %s failed", self.source, exc_info=True)
            raise IngestFailed(
                f'source "{self.source}" could not be read',
                detail=described(error),
                hint=advice(error) or "The next ingest tries it again. The whole error is in the log.",
            ) from error

    def _begin(self) -> Generator[BatchReport, None, tuple[FetchedOffsets, set[str]]]:
        """Match readers with tables, and finish open batches. Returns the fetched offsets, and the tables that stopped."""
        fetched = self.fetch_offsets()
        tables = self.leave_dropped()
        self.change(lambda readers: self._identified(self.with_tables(readers, tables), fetched))
        stopped = yield from recover(self, fetched)
        self.change(lambda readers: self.with_tables(readers, tables))
        stopped |= yield from stop_uncaptured(self)
        stopped |= yield from stop_faulty(self, fetched)
        return fetched, stopped

    def _meanwhile(self) -> Iterator[BatchReport]:
        """Run `main` up to the newest offsets, with empty batches as far apart as in a follow, and report no wait."""
        yield from self._read_on(self.fetch_offsets(), idle_ms=self._idle_meanwhile_ms)

    def _drain_main(self, fetched: FetchedOffsets) -> Iterator[BatchReport]:
        """Run `main` up to the fetched offsets, and report if it waits."""
        planned = yield from self._read_on(fetched, idle_ms=self.idle_ms)
        if planned is None:
            return
        if planned.fetch_again_ms is not None and not self.idle_ms:
            # Once only: whatever blocks it after that was sent after the call.
            self.pause(max(0, planned.fetch_again_ms - now_ms()) / 1000)
            planned = yield from self._read_on(self.fetch_offsets(), idle_ms=self._idle_meanwhile_ms)
        if planned is not None:
            yield from self._wait(planned)

    @property
    def _idle_meanwhile_ms(self) -> int:
        return max(self.idle_ms, _MEANWHILE_IDLE_MS)

    def _read_on(self, fetched: FetchedOffsets, *, idle_ms: int) -> Generator[BatchReport, None, Planned | None]:
        """Run the batches of `main` up to the fetched offsets, with empty ones at least `idle_ms` apart.

        Returns the last plan; None if `main` has no tables, or its turn is over.
        """
        if not self.main().tables:
            return None
        # Tables that caught up may have joined since.
        self.change(lambda readers: self._identified(readers, fetched))
        ran = False
        while True:
            self.leave_dropped()
            state = self.main()
            if not state.tables:
                return None
            own = fetched.without(fetched.topics - self._topics_of_main())
            is_wanted = partial(self._is_wanted, state, ran=ran, idle_ms=idle_ms)
            planned, report = next_batch(self, state, partial(self.planner.plan, state, own), is_wanted)
            if report is None:
                return self._ended(planned, state)
            ran = True
            yield report
            if planned.is_last and not report.stopped:
                was_readable = all(progress.since_ms is not None for progress in state.tables.values())
                return planned if was_readable else self._ended(planned, self.main())
            if self._is_turn_over():
                return None

    def _is_wanted(self, state: ReaderState, planned: Planned, *, ran: bool, idle_ms: int) -> bool:
        """Return whether to run a batch: it has news, or moves the write frontier.

        The frontier does not move again after a batch that just `ran`, nor while a transaction is overdue.
        """
        if state.waiting is not None:
            # The transaction may have arrived; record that now, as long batches may come before the end of this call.
            self._record_waiting(planned)
            state = self.main()
        may_stay = ran or self._moved_lately(planned, state, idle_ms)
        return planned.has_news or not (may_stay or self._is_overdue(planned, state))

    def _ended(self, planned: Planned, state: ReaderState) -> Planned:
        """Return the last plan, asking to fetch offsets again if a table lacks only the end of a partition to be readable.

        A partition may have got more records than were planned for when the end of a snapshot was seen in another one.
        """
        return replace(planned, fetch_again_ms=planned.fetch_again_ms or 0) if _lacks_ends(state) else planned

    def _wait(self, planned: Planned) -> Iterator[BatchReport]:
        """Record and report which transaction blocks the source.

        Raises:
            TransactionIncomplete: It has blocked the source for too long.
        """
        waiting, error = self._record_waiting(planned)
        if error is not None:
            raise error
        if waiting is not None:
            yield without_batch(self, MAIN_READER, waiting=waiting)

    def _record_waiting(self, planned: Planned) -> tuple[Waiting | None, TransactionIncomplete | None]:
        """Record the transaction for which the source waits, and return it, with an error if it takes too long."""
        waiting = self._waiting(planned, self.main())
        error = incomplete_error(self.source, waiting) if waiting is not None and self._is_late(waiting) else None
        stop = ReaderError.of(error) if error is not None else None
        self.change(
            lambda readers: {**readers, MAIN_READER: replace(readers[MAIN_READER], waiting=waiting, error=stop)}
        )
        return waiting, error

    def _waiting(self, planned: Planned, main: ReaderState) -> Waiting | None:
        if planned.incomplete is None:
            return None
        tables = {name: self.topic(name) for name in main.tables}
        return waiting_for(planned.incomplete, planned.waiting, tables, main.waiting, now_ms())

    def _is_overdue(self, planned: Planned, main: ReaderState) -> bool:
        """Return whether the write frontier must not move, because a transaction is overdue."""
        waiting = self._waiting(planned, main)
        return waiting is not None and self._is_late(waiting)

    def _is_turn_over(self) -> bool:
        return self.turn_s is not None and time.monotonic() - self.began_s >= self.turn_s

    def _is_late(self, waiting: Waiting) -> bool:
        return now_ms() - waiting.since_ms >= self.transaction_timeout_ms

    def _moved_lately(self, planned: Planned, main: ReaderState, idle_ms: int) -> bool:
        """Return whether the write frontier of `main` moved so recently that it need not move.

        Batches of tables that catch up have timestamps, too, but do not move it.
        """
        if planned.transactions.is_ahead_of(main.transactions):
            idle_ms = min(idle_ms, _EMPTY_TRANSACTION_IDLE_MS)
        return main.upper_ms is not None and now_ms() < main.upper_ms - 1 + idle_ms

    def _topics_of_main(self) -> set[str]:
        return self.with_transactions(self.topics(self.main()))

    def _identified(self, readers: Readers, fetched: FetchedOffsets) -> Readers:
        def topics(state: ReaderState) -> Collection[str]:
            own = self.topics(state)
            return self.with_transactions(own) if state.reader == MAIN_READER else own

        return identified(readers, fetched, topics)


def _lacks_ends(state: ReaderState) -> bool:
    """Return whether a table is not readable yet although the end of its first snapshot was seen."""
    unreadable = (progress for progress in state.tables.values() if progress.since_ms is None)
    snapshots = (progress.high_water_marks.snapshot for progress in unreadable)
    return any(snapshot is not None and snapshot.end_seen and not snapshot.complete for snapshot in snapshots)
