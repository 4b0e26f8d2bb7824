"""Ingesting a source: everything that was there when it was called, new and stopped tables included.

A source has a reader `main` for the tables that are read together, and others for those that are behind: created while the
source ran, or stopped by an error. Those catch up to where `main` stands, in batches of their own, and join it at identical
offsets; a table whose cause of stopping is gone so recovers by itself. Meanwhile `main` goes on with what arrives: a backfill is
a temporary reader, which slows nobody (seed "Dynamic resource sharing").
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from lakehold.errors import IngestFailed, TransactionIncomplete, UpstreamError
from lakehold.ingest.batch import BatchReport, next_batch, without_batch
from lakehold.ingest.catching_up import CatchingUp
from lakehold.ingest.held_source import HeldSource
from lakehold.ingest.membership import identified
from lakehold.ingest.planning import Planned
from lakehold.ingest.read.reader import Available
from lakehold.ingest.recovery import recover, stop_faulty
from lakehold.ingest.transactions.waiting import incomplete, waiting_for
from lakehold.model.readers import MAIN_READER, ReaderError, Readers, ReaderState, Waiting
from lakehold.spark_errors import is_sparks, said_by_spark
from lakehold.times import now_ms

log = logging.getLogger(__name__)

_MEANWHILE_IDLE_MS = 10_000
"""How far empty batches are apart while others catch up: who waits for a quiet table's write frontier does not wait for them."""


@dataclass(frozen=True, kw_only=True)
class Ingesting(HeldSource):
    """One source being ingested under a lease.

    Args:
        idle_ms: A call that finds nothing to read moves the write frontier at most so often. Above 0 the caller calls again and
            again: nothing is waited for.
        catch_up_s: How long a call goes on with tables that are behind, a batch of each at least: the next one does. None: until
            they have caught up.
        transaction_timeout_ms: How long a transaction may keep the source waiting.
        confirm_standing: Raises when the source is gone, or a statement changes what is upstream of it right now.
        pause: Waits for so many seconds.
    """

    idle_ms: int = 0
    catch_up_s: float | None = None
    transaction_timeout_ms: int
    confirm_standing: Callable[[], None]
    pause: Callable[[float], None] = time.sleep

    @property
    def _catching_up(self) -> CatchingUp:
        return CatchingUp(self, self._meanwhile)

    def drain(self) -> Generator[BatchReport, None, None]:
        """Run the batches that bring every table of the source to what its topics held at the call, one report each.

        A call that finds nothing to read runs one empty batch, which moves the source's write frontier, unless it moved less
        than `idle_ms` ago.
        """
        with self._errors_reported():
            available, stopped = yield from self._begin()
            behind = [name for name in self.readers() if name not in {MAIN_READER, *stopped}]
            yield from self._catching_up.run(behind, self.catch_up_s)
            yield from self._drain_main(self.fetch_offsets() if behind else available)

    def go_on(self) -> Iterator[BatchReport]:
        """Read what arrived for the tables that are read together, for who waits for something else behind a `drain`."""
        with self._errors_reported():
            yield from self._meanwhile()

    def fill(self, tables: Collection[str]) -> Iterator[BatchReport]:
        """Run the batches that bring some tables to where `main` stands, which goes on meanwhile, and let them join it.

        Other tables that are behind stay so, unless they share a reader.
        """
        with self._errors_reported():
            _, stopped = yield from self._begin()
            behind = [name for name, state in self.readers().items() if not state.tables.keys().isdisjoint(tables)]
            yield from self._catching_up.run([name for name in behind if name not in {MAIN_READER, *stopped}])
            in_main = self.main().tables
            if any(progress.since_ms is None for name, progress in in_main.items() if name in tables):
                yield from self._drain_main(self.fetch_offsets())

    @contextmanager
    def _errors_reported(self) -> Iterator[None]:
        """Report what Spark throws outside of tables, as of topics that are deleted while it reads their transactions."""
        try:
            yield
        except UpstreamError as error:
            if not error.retryable:
                # The topics of a source that is dropped go before its definition does.
                self.confirm_standing()
                stop = ReaderError(error.code, error.message, error.detail, error.hint)
                self.change(lambda readers: {**readers, MAIN_READER: replace(readers[MAIN_READER], error=stop)})
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

    def _begin(self) -> Generator[BatchReport, None, tuple[Available, set[str]]]:
        """Bring readers and tables together, and finish what was begun. Returns what there is now, and who stopped by that."""
        available = self.fetch_offsets()
        tables = self.leave_dropped()
        self.change(lambda readers: self._identified(self.with_tables(readers, tables), available))
        stopped = yield from recover(self, available)
        self.change(lambda readers: self.with_tables(readers, tables))
        stopped |= yield from stop_faulty(self, available)
        return available, stopped

    def _meanwhile(self) -> Iterator[BatchReport]:
        yield from self._drain_main(self.fetch_offsets(), meanwhile=True)

    def _drain_main(self, available: Available, *, meanwhile: bool = False) -> Iterator[BatchReport]:
        """Read on with `main`; `meanwhile` empty batches are as far apart as in a follow, and its end is not told of."""
        planned = yield from self._read_on(available, meanwhile=meanwhile)
        if meanwhile or planned is None:
            return
        if planned.fetch_again_ms is not None and not self.idle_ms:
            # Once: what else keeps it waiting then was sent behind the call.
            self.pause(max(0, planned.fetch_again_ms - now_ms()) / 1000)
            planned = yield from self._read_on(self.fetch_offsets(), meanwhile=True)
        if planned is not None:
            yield from self._wait(planned)

    def _read_on(self, available: Available, *, meanwhile: bool) -> Generator[BatchReport, None, Planned | None]:
        """Run the batches of `main` up to what there is. Returns what was planned last; None: it has no tables."""
        if not self.main().tables:
            return None
        # Tables that caught up have joined since.
        self.change(lambda readers: self._identified(readers, available))
        ran = False
        while True:
            self.leave_dropped()
            state = self.main()
            if not state.tables:
                return None
            own = available.without(available.topics - self._topics_of_main())
            may_stand = ran or self._moved_lately(state, meanwhile=meanwhile)
            planned, report = next_batch(
                self, state, partial(self.planner.plan, state, own), partial(self._is_wanted, state, may_stand)
            )
            if report is None:
                return self._ended(planned, state)
            ran = True
            yield report
            if planned.is_last and not report.stopped:
                was_readable = all(progress.since_ms is not None for progress in state.tables.values())
                return planned if was_readable else self._ended(planned, self.main())

    def _is_wanted(self, state: ReaderState, may_stand: bool, planned: Planned) -> bool:
        """Return whether a batch is run: it has news, or moves the write frontier, which stands still while something is late."""
        if state.waiting is not None:
            # It may have come, and long batches may lie before the end of them.
            self._note_waiting(planned)
            state = self.main()
        return planned.has_news or not (may_stand or self._is_overdue(planned, state))

    def _ended(self, planned: Planned, state: ReaderState) -> Planned:
        """Return the last plan, to fetch end offsets again if a table lacks only the end of some partition to be readable.

        A partition may have got more than the batches were planned for, when the end of a snapshot was seen in another one.
        """
        return replace(planned, fetch_again_ms=planned.fetch_again_ms or 0) if _lacks_ends(state) else planned

    def _wait(self, planned: Planned) -> Iterator[BatchReport]:
        """Keep and tell which transaction keeps the source waiting.

        Raises:
            TransactionIncomplete: It has for too long.
        """
        waiting, error = self._note_waiting(planned)
        if error is not None:
            raise error
        if waiting is not None:
            yield without_batch(self, MAIN_READER, waiting=waiting)

    def _note_waiting(self, planned: Planned) -> tuple[Waiting | None, TransactionIncomplete | None]:
        """Keep for what the source waits as a batch was planned, and the error if that takes too long."""
        waiting = self._waiting(planned, self.main())
        error = incomplete(self.source, waiting) if waiting is not None and self._is_late(waiting) else None
        stop = ReaderError(error.code, error.message, error.detail, error.hint) if error is not None else None
        self.change(
            lambda readers: {**readers, MAIN_READER: replace(readers[MAIN_READER], waiting=waiting, error=stop)}
        )
        return waiting, error

    def _waiting(self, planned: Planned, main: ReaderState) -> Waiting | None:
        if planned.blocked is None:
            return None
        tables = {name: self.topic(name) for name in main.tables}
        return waiting_for(planned.blocked, planned.waiting, tables, main.waiting, now_ms())

    def _is_overdue(self, planned: Planned, main: ReaderState) -> bool:
        """Return whether the write frontier must stand still, because something does not come."""
        waiting = self._waiting(planned, main)
        return waiting is not None and self._is_late(waiting)

    def _is_late(self, waiting: Waiting) -> bool:
        return now_ms() - waiting.since_ms >= self.transaction_timeout_ms

    def _moved_lately(self, main: ReaderState, *, meanwhile: bool) -> bool:
        """Return whether the write frontier of `main` may stand: others that catch up have timestamps too, and do not move it."""
        idle_ms = max(self.idle_ms, _MEANWHILE_IDLE_MS) if meanwhile else self.idle_ms
        return main.upper_ms is not None and now_ms() < main.upper_ms - 1 + idle_ms

    def _topics_of_main(self) -> set[str]:
        return self.with_transactions(self.topics(self.main()))

    def _identified(self, readers: Readers, available: Available) -> Readers:
        return identified(readers, available, self.with_transactions(self.topics(readers[MAIN_READER])))


def _lacks_ends(state: ReaderState) -> bool:
    """Return whether a table is not readable yet although the end of its first snapshot was seen."""
    unreadable = (progress for progress in state.tables.values() if progress.since_ms is None)
    snapshots = (progress.marks.snapshot for progress in unreadable)
    return any(snapshot is not None and snapshot.end_seen and not snapshot.complete for snapshot in snapshots)
