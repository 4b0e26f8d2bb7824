"""One batch, in the five steps of the design: plan, intent, decode once, apply each table, commit.

Everything a batch does is named by its intent, which is in the lake before any table is touched: run again after a crash it
reads the same offsets under the same timestamp, and every effect that is there already is seen and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from lakehold.catalog.batches import Batch, BatchStore, TableChange
from lakehold.catalog.definitions import Entry
from lakehold.catalog.readers import MAIN_READER, Intent, ReaderError, ReaderState, TableProgress, Waiting
from lakehold.definitions import Envelope, Table
from lakehold.errors import LakeholdError, LeaseLost, UpstreamUnavailable
from lakehold.failpoints import reach
from lakehold.ingest.apply import Arriving, SchemasUnknown, Writing, apply_changes, settle
from lakehold.ingest.changes import Changes
from lakehold.ingest.effects import BatchIdentity, TableReport
from lakehold.ingest.envelope import changes_of
from lakehold.ingest.evolve import stored_key
from lakehold.ingest.lease import HeldLease
from lakehold.ingest.marks import Marks
from lakehold.ingest.offsets import OffsetRange, Offsets, to_json
from lakehold.ingest.planning import Planned
from lakehold.ingest.read.edges import edges
from lakehold.ingest.read.lines import file_of
from lakehold.ingest.read.reader import Limits, Reader, ReadPlan
from lakehold.ingest.topic import TopicDecoder
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
        tables: What it did to each table that had messages.
        stopped: Tables that could not go on, with the error.
        waiting: An upstream transaction that has not come whole, for which the source waits.
        malformed: Lines of a FILES source that are no message.
        elapsed_ms: From before the intent to behind the last table's commit.
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
        reader: Where records come from.
        decoder: Turns a topic's records into typed columns.
        writing: Where changes go.
        tables: The source's tables by full name.
        driver_limits: Batches within them are read in the driver.
        awaited: Object ids of tables whose snapshot is under way upstream without saying so in their topics: they are not
            readable before it is complete.
    """

    store: BatchStore
    lease: HeldLease
    reader: Reader
    decoder: TopicDecoder
    writing: Writing
    tables: Mapping[str, Entry[Table]]
    driver_limits: Limits
    awaited: frozenset[str] = frozenset()


def run_batch(running: Running, state: ReaderState, planned: Planned, timestamp_ms: int) -> BatchReport:
    """Begin a batch and bring it to its commit."""
    started_ms = now_ms()
    parents: dict[str, int | None] = dict.fromkeys(state.tables)
    intent = Intent(state.source, state.reader, timestamp_ms, planned.plan.position, parents, planned.transactions)
    reach("before-intent")
    running.store.begin(intent, running.lease.owner)
    reach("after-intent")
    return complete(running, state, intent, planned, started_ms)


def complete(running: Running, state: ReaderState, intent: Intent, planned: Planned, started_ms: int) -> BatchReport:
    """Make the effects of an open intent and commit it; of those an earlier attempt made, none is made again."""
    plan = planned.plan
    identity = BatchIdentity(intent.source, intent.mz_timestamp, to_json(_own_offsets(plan.ranges)))
    records = _Records(running, plan)
    malformed = running.reader.malformed(plan.ranges) if state.reader == MAIN_READER else ()
    if malformed:
        running.writing.errors.record_malformed(identity, malformed)
    progress: dict[str, TableProgress] = {}
    reports: list[TableReport] = []
    stopped: dict[str, LakeholdError] = {}
    for name, before in state.tables.items():
        entry = running.tables[name]
        progress[name] = before
        settled = entry.definition.topic in planned.settled
        try:
            if records.has(entry.definition.topic):
                report, progress[name] = _apply(running, identity, entry, records, before, settled)
                reports.append(report)
            elif settled:
                progress[name] = settle(running.writing, identity, entry, before)
            if entry.object_id in running.awaited or state.reader != MAIN_READER:
                # A table that catches up becomes readable as it joins the others.
                progress[name] = replace(progress[name], since_ms=before.since_ms)
        except (LeaseLost, UpstreamUnavailable):
            raise
        # Whatever else goes wrong with one table must not stop its neighbours: it stops alone and says why.
        except Exception as error:
            stopped[name] = _as_stop(entry.definition, error)
            log.warning(
                "table %s stopped: %s", name, stopped[name].message, exc_info=not isinstance(error, LakeholdError)
            )
    reach("before-commit")
    whole = BatchReport(
        source=intent.source,
        reader=intent.reader,
        timestamp_ms=intent.mz_timestamp,
        records=sum(r.records for r in reports),
        tables=tuple(reports),
        stopped=stopped,
        malformed=len(malformed),
        elapsed_ms=now_ms() - started_ms,
    )
    _commit(running, state, intent, progress, whole, plan, started_ms)
    reach("after-commit")
    return whole


class _Records:
    """A batch's raw records, read once: in the driver when they are few, by Spark otherwise."""

    def __init__(self, running: Running, plan: ReadPlan) -> None:
        self._running = running
        self._plan = plan
        few = plan.fits(running.driver_limits)
        self._table = running.reader.in_driver(plan.ranges) if few and plan.ranges else None
        self._topics = (
            set(pc.unique(self._table["topic"]).to_pylist())
            if self._table is not None
            else {r.topic_partition.topic for r in plan.ranges}
        )

    @property
    def are_few(self) -> bool:
        """Whether they are in the driver."""
        return self._table is not None

    def has(self, topic: str) -> bool:
        """Whether the batch may have records of `topic`."""
        return topic in self._topics

    def of(self, topic: str) -> pa.Table | DataFrame:
        """The records of `topic`."""
        if self._table is not None:
            return self._table.filter(pc.equal(self._table["topic"], topic))
        wanted = [
            r for r in self._plan.ranges if r.topic_partition.topic == topic or file_of(r.topic_partition) is not None
        ]
        return self._running.reader.dataframe(self._running.writing.spark(), wanted)

    def may_move_keys(self, topic: str, before: Marks) -> bool:
        """Whether a partition has records that had none before, beside others: keys may have come from those."""
        read = {r.topic_partition.partition for r in self._plan.ranges if r.topic_partition.topic == topic}
        return bool(read - before.passed.keys()) and len(read | before.passed.keys()) > 1

    def have_edges(self, topic: str) -> bool:
        """Whether they are many, and of partitions: files hold messages of several partitions."""
        return self._table is None and any(r.topic_partition.topic == topic for r in self._plan.ranges)

    def edges(self, topic: str) -> pa.Table:
        """The first and the last records of each partition of `topic`."""
        return edges(self._running.reader, [r for r in self._plan.ranges if r.topic_partition.topic == topic])


def _apply(  # noqa: PLR0913
    running: Running,
    identity: BatchIdentity,
    entry: Entry[Table],
    records: _Records,
    before: TableProgress,
    settled: bool,
) -> tuple[TableReport, TableProgress]:
    table = entry.definition
    state = running.writing.tables.table_state(table.full_name)
    key = stored_key(state)
    of_topic = records.of(table.topic)
    has_positions = table.envelope is not Envelope.UPSERT
    by_position = has_positions and records.may_move_keys(table.topic, Marks.from_json(before.marks))

    def edges() -> Changes:
        return changes_of(running.decoder.decode(table, records.edges(table.topic), key).decoded, table, key)

    def applied(*, look: bool) -> tuple[TableReport, TableProgress]:
        topic = running.decoder.decode(table, of_topic, key, look=look)
        changes = changes_of(topic.decoded, table, key)
        arriving = Arriving(
            replace(changes, by_position=by_position),
            topic.raw,
            are_few=records.are_few,
            edges=edges if records.have_edges(table.topic) else None,
            settled=settled,
            knows_all_schemas=topic.knows_all,
        )
        return apply_changes(running.writing, identity, entry, arriving, before, state)

    try:
        return applied(look=False)
    except SchemasUnknown:
        return applied(look=True)


def _own_offsets(read: tuple[OffsetRange, ...]) -> Offsets:
    return {r.topic_partition: r.end_exclusive for r in read}


def _as_stop(table: Table, error: Exception) -> LakeholdError:
    if isinstance(error, LakeholdError):
        return error
    first_line = str(error).strip().split("\n", 1)[0]
    return LakeholdError(
        f'table "{table.full_name}" could not take its changes',
        code="table-failed",
        detail=f"{type(error).__name__}: {first_line}",
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
