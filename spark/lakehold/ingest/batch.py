"""One batch of a reader, from planning to its commit: read `next_batch` from top to bottom.

A *reader* is a group of tables of one source that share a position: `main` for those in sync, others for tables that catch up.
`source_ingest.py` and `catching_up.py` call `next_batch`, `recovery.py` calls `finish_batch` after a crash.

The intent, which is in the lake before any table is touched, names everything that a batch does. Run again after a crash,
the batch reads the same offsets under the same timestamp, and skips every effect that exists already.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing

from lakehold.errors import LakeholdError, LeaseLost, UpstreamUnavailable
from lakehold.failpoints import failpoint
from lakehold.ingest.arriving_records import ArrivingRecords
from lakehold.ingest.batch_report import BatchReport, changes, log_batch
from lakehold.ingest.leased_source import LeasedSource
from lakehold.ingest.metrics import Phases, count_batch, count_failures
from lakehold.ingest.one_table import OpenBatch, TableOutcome, bring_to_timestamp
from lakehold.ingest.planning import Planned
from lakehold.ingest.write.batch_effects import BatchIdentity
from lakehold.model.offsets import to_json
from lakehold.model.readers import MAIN_READER, Intent, ReaderError, ReaderState, Waiting
from lakehold.state.batch_protocol import Batch, TableChange
from lakehold.times import now_ms

log = logging.getLogger(__name__)


def next_batch(
    of: LeasedSource,
    state: ReaderState,
    plan: Callable[[ArrivingRecords], Planned],
    is_wanted: Callable[[Planned], bool],
) -> tuple[Planned, BatchReport | None]:
    """Plan the next batch of a reader, and run it if `is_wanted` accepts the plan. Returns the plan, and the report if it ran.

    Args:
        of: The source.
        state: The state of the reader before the batch.
        plan: Chooses an offset range. If the batch must end at a transaction boundary, `plan` also reads and decodes the range:
            the headers of its changes show where the last whole transaction ends.
        is_wanted: Returns whether to run the planned batch; a batch that is not wanted changes nothing.
    """
    phases = Phases()
    with closing(of.arriving(state)) as arriving:
        with phases.phase("plan"):
            planned = plan(arriving)
        if not is_wanted(planned):
            return planned, None
        with phases.phase("read"):
            _read(of, state, planned, arriving)
        with phases.phase("begin"):
            intent = _begin(of, state, planned)
        return planned, _complete(of, state, planned, arriving, intent, phases)


def finish_batch(of: LeasedSource, state: ReaderState, planned: Planned, intent: Intent) -> BatchReport:
    """Finish a batch whose process was killed after the intent: read the same offsets, skip effects that exist, commit."""
    phases = Phases()
    with closing(of.arriving(state)) as arriving:
        with phases.phase("read"):
            _read(of, state, planned, arriving)
        return _complete(of, state, planned, arriving, intent, phases)


def stop(of: LeasedSource, reader: str, stopped: Mapping[str, LakeholdError]) -> BatchReport:
    """Stop tables outside of a batch: each of them moves to a reader of its own, with its error."""
    # Dropping a source, or a table of it, deletes the topics before the definition: missing ones are no error of a table then.
    of.confirm_defined()
    of.leave(stopped)
    count_failures(of.source, stopped.values())
    return without_batch(of, reader, stopped=stopped)


def without_batch(
    of: LeasedSource,
    reader: str,
    *,
    stopped: Mapping[str, LakeholdError] | None = None,
    waiting: Waiting | None = None,
) -> BatchReport:
    """Return the report of an ingest step in which no batch ran; it carries the source's last timestamp."""
    return BatchReport(of.source, reader, of.last_ms(), 0, stopped=stopped or {}, waiting=waiting)


def _read(of: LeasedSource, state: ReaderState, planned: Planned, arriving: ArrivingRecords) -> None:
    """Read the batch and decode it for each table, unless planning has done so already to find where the batch ends."""
    arriving.take(planned.plan)

    def prepare(name: str) -> None:
        try:
            of.applier.prepare(arriving.of(name), state.tables[name])
        except (LeaseLost, UpstreamUnavailable):
            raise
        # Not raised here: `bring_to_timestamp` meets the same error again, and there it stops only this table.
        except Exception as error:
            log.info("table %s cannot be prepared", name, exc_info=error)

    arriving.for_tables([name for name in state.tables if arriving.has(of.topic(name))], prepare)


def _begin(of: LeasedSource, state: ReaderState, planned: Planned) -> Intent:
    """Write the intent, which fixes the batch's timestamp and its end offsets."""
    ends, transactions = planned.plan.position, planned.transactions
    intent = Intent(state.source, state.reader, of.next_timestamp(), ends, frozenset(state.tables), transactions)
    failpoint("before-intent")
    of.store.begin(intent, of.lease.holder, of.seen_upstream_ms if state.reader == MAIN_READER else None)
    failpoint("after-intent")
    return intent


def _complete(  # noqa: PLR0913 - a batch, what it reads, and where it is run
    of: LeasedSource, state: ReaderState, planned: Planned, arriving: ArrivingRecords, intent: Intent, phases: Phases
) -> BatchReport:
    """Bring all tables to the batch's timestamp, in parallel, and then commit the batch."""
    ends = {r.topic_partition: r.end_exclusive for r in planned.plan.ranges}
    batch = OpenBatch(
        of,
        state,
        planned,
        arriving,
        BatchIdentity(intent.source, intent.mz_timestamp, to_json(ends)),
        phases.started_ms,
    )
    with phases.phase("write"):
        malformed = _record_malformed(batch)
        tables = arriving.for_tables([*state.tables], lambda name: bring_to_timestamp(batch, name))
        report = _report(batch, tables, malformed)
    with phases.phase("commit"):
        _commit(batch, intent, tables, report)
    count_batch(report.source, report.records, {table.table: changes(table) for table in report.tables}, phases)
    count_failures(report.source, report.stopped.values())
    log_batch(report, phases)
    return report


def _record_malformed(batch: OpenBatch) -> int:
    """Record the lines of files that are not messages. Returns their number; only batches of `main` record them."""
    of = batch.of
    malformed = of.reading.reader.malformed(batch.planned.plan) if batch.state.reader == MAIN_READER else ()
    if malformed:
        of.writing.errors.record_malformed(batch.identity, malformed)
    return len(malformed)


def _report(batch: OpenBatch, tables: Mapping[str, TableOutcome], malformed: int) -> BatchReport:
    reports = tuple(done.report for done in tables.values() if done.report is not None)
    read = Counter[str]()
    for report in reports:
        read |= Counter({batch.of.topic(report.table): report.records})
    return BatchReport(
        source=batch.state.source,
        reader=batch.state.reader,
        timestamp_ms=batch.identity.timestamp_ms,
        records=read.total(),
        tables=reports,
        stopped={name: done.stopped for name, done in tables.items() if done.stopped is not None},
        malformed=malformed,
        elapsed_ms=now_ms() - batch.started_ms,
    )


def _commit(batch: OpenBatch, intent: Intent, tables: Mapping[str, TableOutcome], report: BatchReport) -> None:
    """Commit the batch: all tables of the reader move to its timestamp at once."""
    of, state, plan = batch.of, batch.state, batch.planned.plan
    progress = {name: done.progress for name, done in tables.items()}
    done = Batch(
        source=intent.source,
        reader=intent.reader,
        mz_timestamp=intent.mz_timestamp,
        start={tp: at for tp, at in state.position.items() if tp in intent.end},
        end=intent.end,
        tables={r.table: TableChange(r.inserted, r.updated, r.deleted, r.errors, r.snapshot_id) for r in report.tables},
        records=report.records,
        bytes=plan.size_bytes,
        started_at_ms=batch.started_ms,
        committed_at_ms=now_ms(),
        holder=of.lease.holder,
    )
    errors = {name: ReaderError.of(error) for name, error in report.stopped.items()}
    written = frozenset(name for name, outcome in tables.items() if outcome.is_written)
    failpoint("before-commit")
    of.store.commit(intent, of.lease.holder, progress, done, errors, written)
    failpoint("after-commit")
    if state.reader == MAIN_READER:
        of.begin_holds(state.tables, progress)
