"""One batch: what arrives is read and decoded, the intent is written, each table takes its changes, the batch is committed.

Everything a batch does is named by its intent, which is in the lake before any table is touched: run again after a crash it
reads the same offsets under the same timestamp, and every effect that is there already is seen and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

from lakehold.definitions import Table
from lakehold.errors import LakeholdError, LeaseLost, UpstreamError, UpstreamUnavailable
from lakehold.failpoints import reach
from lakehold.ingest.apply import Applier, TableBatch
from lakehold.ingest.arriving import Arriving
from lakehold.ingest.effects import BatchIdentity, TableReport
from lakehold.ingest.empty_tables import UpstreamColumnsOf, make_empty, no_columns
from lakehold.ingest.planning import Planned
from lakehold.ingest.read.reader import ReadPlan
from lakehold.ingest.repeats import Snapshots, remove_gone
from lakehold.ingest.shared_records import Reading
from lakehold.ingest.side_by_side import Lanes
from lakehold.ingest.snapshots import Reach, emptied_marks, ending_at, with_end_seen, without_end
from lakehold.ingest.writing import Writing
from lakehold.model.definitions import Entry
from lakehold.model.marks import Marks
from lakehold.model.offsets import OffsetRange, Offsets, TopicPartition, to_json
from lakehold.model.passed import Passed, Replaced
from lakehold.model.readers import MAIN_READER, Intent, ReaderError, ReaderState, TableProgress, Waiting
from lakehold.spark_errors import is_sparks, said_by_spark
from lakehold.state.batches import Batch, BatchStore, TableChange
from lakehold.state.lease import HeldLease
from lakehold.times import now_ms

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchReport:
    """What one batch did.

    Args:
        source: The source.
        reader: `main`, or the table that caught up alone.
        timestamp_ms: The batch's timestamp.
        records: Messages read.
        tables: What it did to each table that had messages, or rows that a repeated snapshot did not bring.
        stopped: Tables that could not go on, with the error.
        waiting: An upstream transaction that has not come whole, for which the source waits.
        malformed: Lines of a FILES source that are no message.
        elapsed_ms: From before anything was read to the last table's commit.
    """

    source: str
    reader: str
    timestamp_ms: int
    records: int
    tables: tuple[TableReport, ...] = ()
    stopped: Mapping[str, LakeholdError] = field(default_factory=dict)
    waiting: Waiting | None = None
    malformed: int = 0
    elapsed_ms: int = 0


@dataclass(frozen=True)
class Running:
    """What running batches of one source takes.

    Args:
        store: Where intents and commits go.
        lease: Held on the source.
        reading: Where records come from.
        writing: Commits to tables.
        applier: Where changes go.
        lanes: Where tables take them side by side.
        tables: The source's tables by full name.
        snapshots: What is said of those upstream, as the topics of tables need not tell.
        seen_upstream_ms: See `ReaderState`; None: nothing new.
        columns_of: Gives the columns of a table in the database.
    """

    store: BatchStore
    lease: HeldLease
    reading: Reading
    writing: Writing
    applier: Applier
    lanes: Lanes
    tables: Mapping[str, Entry[Table]]
    snapshots: Snapshots = field(default_factory=Snapshots)
    seen_upstream_ms: int | None = None
    columns_of: UpstreamColumnsOf = no_columns

    def topic(self, table: str) -> str:
        """Return that of one of the tables."""
        return self.tables[table].definition.topic

    def arriving(self, state: ReaderState) -> Arriving:
        """Return what will arrive for the tables of a reader; to be closed."""
        entries = {name: self.tables[name] for name in state.tables}
        return Arriving(self.reading, entries, self.writing.tables, self.lanes)

    def keeps_back(self, table: str, progress: TableProgress, transactions: Passed) -> bool:
        """Whether a table is not readable yet, though no snapshot of it is half read.

        A topic that nothing came of may get a snapshot's rows yet: the first message tells, or a transaction, which connectors
        send behind their snapshots. Keys of `UPSERT` come one by one.

        Args:
            table: Its full name.
            progress: How far it is.
            transactions: What `main` has taken of upstream's transactions.
        """
        is_silent = (
            not self.snapshots.are_told
            and self.tables[table].definition.envelope.has_positions
            and progress.marks == Marks()
            and not transactions.commits
        )
        return is_silent or self.snapshots.keeps_back(progress.object_id, transactions)

    def has_table(self, name: str) -> bool:
        """Return whether a table that has no rows may become readable: it exists then, if anything says its columns.

        Raises:
            TableStopped: No table can have its columns, or the name is another table's.
        """
        try:
            make_empty(self.writing, self.tables[name], self.columns_of)
        except UpstreamError as error:
            log.info("table %s is not readable yet: %s. %s", name, error.message, error.detail)
            return False
        return True

    def begin_holds(self, before: Mapping[str, TableProgress], after: Mapping[str, TableProgress]) -> None:
        """Give holds their time that waited for tables which have become readable."""
        begun = [
            name
            for name, progress in after.items()
            if progress.since_ms is not None and (name not in before or before[name].since_ms is None)
        ]
        if begun:
            self.writing.held.begin(begun)


def run_batch(
    running: Running, state: ReaderState, planned: Planned, arriving: Arriving, timestamp_ms: int
) -> BatchReport:
    """Begin a batch and bring it to its commit.

    Args:
        running: What it takes.
        state: Its reader.
        planned: What it reads.
        arriving: The same, as far as it has been read to plan it.
        timestamp_ms: Its timestamp (epoch milliseconds).
    """
    started_ms = now_ms()
    _prepare(running, state, planned, arriving)
    parents: dict[str, int | None] = dict.fromkeys(state.tables)
    intent = Intent(state.source, state.reader, timestamp_ms, planned.plan.position, parents, planned.transactions)
    reach("before-intent")
    running.store.begin(intent, running.lease.owner, running.seen_upstream_ms if state.reader == MAIN_READER else None)
    reach("after-intent")
    return _complete(running, state, intent, planned, arriving, started_ms)


def complete(running: Running, state: ReaderState, intent: Intent, planned: Planned) -> BatchReport:
    """Make the effects of an open intent and commit it; of those an earlier attempt made, none is made again."""
    started_ms = now_ms()
    with closing(running.arriving(state)) as arriving:
        _prepare(running, state, planned, arriving)
        return _complete(running, state, intent, planned, arriving, started_ms)


def _prepare(running: Running, state: ReaderState, planned: Planned, arriving: Arriving) -> None:
    """Read and decode what the batch has for each table."""
    arriving.take(planned.plan)

    def prepare(name: str) -> None:
        try:
            running.applier.prepare(arriving.of(name), state.tables[name])
        except (LeaseLost, UpstreamUnavailable):
            raise
        # The table stops by it when its turn comes, alone.
        except Exception as error:
            log.info("table %s cannot be prepared", name, exc_info=error)

    arriving.for_tables([name for name in state.tables if arriving.has(running.topic(name))], prepare)


def _complete(  # noqa: PLR0913 - a batch, what it reads, and where it is run
    running: Running, state: ReaderState, intent: Intent, planned: Planned, arriving: Arriving, started_ms: int
) -> BatchReport:
    plan = planned.plan
    identity = BatchIdentity(intent.source, intent.mz_timestamp, to_json(_own_offsets(plan.ranges)))
    malformed = running.reading.reader.malformed(plan) if state.reader == MAIN_READER else ()
    if malformed:
        running.writing.errors.record_malformed(identity, malformed)
    applied = _apply_all(running, identity, state, planned, arriving)
    reach("before-commit")
    reports = tuple(done.report for done in applied.values() if done.report is not None)
    progress = {name: done.progress for name, done in applied.items()}
    whole = BatchReport(
        source=intent.source,
        reader=intent.reader,
        timestamp_ms=intent.mz_timestamp,
        records=sum(report.records for report in reports),
        tables=reports,
        stopped={name: done.stopped for name, done in applied.items() if done.stopped is not None},
        malformed=len(malformed),
        elapsed_ms=now_ms() - started_ms,
    )
    _commit(running, state, intent, progress, whole, plan, started_ms)
    reach("after-commit")
    if state.reader == MAIN_READER:
        running.begin_holds(state.tables, progress)
    return whole


@dataclass(frozen=True)
class _Applied:
    """Say what a batch did to one table."""

    progress: TableProgress
    report: TableReport | None = None
    stopped: LakeholdError | None = None


def _apply_all(
    running: Running, identity: BatchIdentity, state: ReaderState, planned: Planned, arriving: Arriving
) -> dict[str, _Applied]:
    """Bring every table of a reader to the batch's timestamp, side by side."""

    def applied(name: str) -> _Applied:
        entry, held = running.tables[name], state.tables[name]
        try:
            report, after = _applied_to(running, identity, state, planned, arriving, name)
        except (LeaseLost, UpstreamUnavailable):
            raise
        # Whatever else goes wrong with one table must not stop its neighbours: it stops alone and says why.
        except Exception as error:
            stop = _as_stop(entry.definition, error)
            if state.error is None or state.error.message != stop.message:
                # A follow tries it again every few seconds.
                log.warning("table %s stopped: %s", name, stop.message, exc_info=not isinstance(error, LakeholdError))
            return _Applied(held, stopped=stop)
        reach("after-table")
        return _Applied(after, report)

    return arriving.for_tables([*state.tables], applied)


def _applied_to(  # noqa: PLR0913 - a batch, what it reads, and where it is run
    running: Running, identity: BatchIdentity, state: ReaderState, planned: Planned, arriving: Arriving, name: str
) -> tuple[TableReport | None, TableProgress]:
    """Bring a table to the batch's timestamp. Returns what was done to it, if anything, and its progress."""
    entry, held = running.tables[name], state.tables[name]
    table = entry.definition
    reach = _reach(table.topic, planned)
    report, after = None, held
    before = _emptied(running, entry, held, planned.replaced)
    if arriving.has(table.topic):
        with closing(arriving.of(name)) as arrival:
            report, after = running.applier.apply(TableBatch(identity, arrival, before, reach))
    elif _tells_without_messages(table, before, planned):
        after = running.applier.settle(identity, table, before, reach)
    after = _with_ends(running, identity, entry, after, planned)
    if entry.object_id in running.snapshots.repeated:
        report, after = _remove_gone(running, identity, entry, planned, report, after)
    is_kept_back = held.since_ms is None and running.keeps_back(name, after, planned.transactions)
    if is_kept_back or state.reader != MAIN_READER:
        # A table that catches up becomes readable as it joins the others.
        after = replace(after, since_ms=held.since_ms)
    if held.since_ms is None and after.since_ms is not None and report is None and not running.has_table(name):
        after = replace(after, since_ms=None)
    return report, after


def _reach(topic: str, planned: Planned) -> Reach:
    return Reach(
        _of(topic, planned.past_snapshots), planned.replaced.position if planned.replaced is not None else None
    )


def _tells_without_messages(table: Table, before: TableProgress, planned: Planned) -> bool:
    """Return whether a table may become readable by a batch that has no message of it."""
    return before.marks.snapshot is not None or table.topic in planned.settled


def _with_ends(
    running: Running, identity: BatchIdentity, entry: Entry[Table], after: TableProgress, planned: Planned
) -> TableProgress:
    """Return the progress with where partitions ended that may have more of a snapshot, when its end was first seen.

    They are fetched now, with what is not committed in Kafka yet: what comes after them was sent after the snapshot's end.
    """
    topic, marks, reach = entry.definition.topic, after.marks, _reach(entry.definition.topic, planned)
    if after.since_ms is None and running.snapshots.tells_complete(entry.object_id):
        # The last row may be a message that cannot be read.
        marks = with_end_seen(marks)
    partitions = without_end(marks, reach)
    if not partitions:
        return after
    of_topic = [TopicPartition(topic, partition) for partition in sorted(partitions)]
    ends = {**planned.ends, **running.reading.reader.written_ends(of_topic)}
    found = {partition: at for partition, at in _of(topic, ends).items() if partition in partitions}
    ended = replace(after, marks=ending_at(marks, found))
    return running.applier.settle(identity, entry.definition, ended, reach)


def _of(topic: str, offsets: Offsets) -> dict[int, int]:
    return {tp.partition: at for tp, at in offsets.items() if tp.topic == topic}


def _emptied(running: Running, entry: Entry[Table], before: TableProgress, replaced: Replaced | None) -> TableProgress:
    """What a table goes on from of which a snapshot taken anew has no row: what it has from before goes with the batch."""
    table = entry.definition
    if replaced is None or table.topic not in replaced.without_rows or not table.envelope.has_positions:
        return before
    state = running.writing.tables.table_state(table.full_name)
    sequence_number = state.current.sequence_number if state is not None and state.current is not None else None
    marks = emptied_marks(before.marks, replaced.position, sequence_number)
    return replace(before, marks=marks)


def _remove_gone(  # noqa: PLR0913
    running: Running,
    identity: BatchIdentity,
    entry: Entry[Table],
    planned: Planned,
    report: TableReport | None,
    progress: TableProgress,
) -> tuple[TableReport | None, TableProgress]:
    snapshot = running.snapshots.repeated[entry.object_id]
    removed, after = remove_gone(running.writing, identity, entry, snapshot, progress, planned.plan.position)
    if removed is not None and report is not None:
        removed = replace(removed, records=report.records, repeated=report.repeated, errors=report.errors)
    return removed or report, after


def _own_offsets(read: tuple[OffsetRange, ...]) -> Offsets:
    return {r.topic_partition: r.end_exclusive for r in read}


def _as_stop(table: Table, error: Exception) -> LakeholdError:
    if isinstance(error, LakeholdError):
        return error
    first_line = str(error).strip().split("\n", 1)[0]
    return LakeholdError(
        f'table "{table.full_name}" could not take its changes',
        code="table-failed",
        detail=said_by_spark(error) if is_sparks(error) else f"{type(error).__name__}: {first_line}",
        hint="It is tried again by the next ingest; its neighbours went on. The whole error is in the log.",
    )


def _commit(  # noqa: PLR0913
    running: Running,
    state: ReaderState,
    intent: Intent,
    progress: Mapping[str, TableProgress],
    report: BatchReport,
    plan: ReadPlan,
    started_ms: int,
) -> None:
    batch = Batch(
        source=intent.source,
        reader=intent.reader,
        mz_timestamp=intent.mz_timestamp,
        start={tp: at for tp, at in state.position.items() if tp in intent.end},
        end=intent.end,
        tables={r.table: TableChange(r.inserted, r.updated, r.deleted, r.errors, r.snapshot_id) for r in report.tables},
        records=report.records,
        bytes=plan.size_bytes,
        started_at_ms=started_ms,
        committed_at_ms=now_ms(),
        owner=running.lease.owner,
    )
    errors = {name: ReaderError(e.code, e.message, e.detail, e.hint) for name, e in report.stopped.items()}
    running.store.commit(intent, running.lease.owner, progress, batch, errors)
