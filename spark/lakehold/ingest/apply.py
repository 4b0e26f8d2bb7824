"""One table's part of a batch: judge its changes, decide, write. Reads top to bottom as it happens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehold.catalog.column_bounds import ColumnBounds
from lakehold.catalog.data_tables import DataTables, TableState
from lakehold.catalog.definitions import Entry
from lakehold.catalog.readers import TableProgress
from lakehold.definitions import Envelope, Table
from lakehold.errors import LakeholdError, TableStopped
from lakehold.failpoints import reach
from lakehold.ingest import classic, evolve, merge
from lakehold.ingest.changes import DETAIL, ERROR, OFFSET, PARTITION, Changes
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.error_records import ErrorRecords
from lakehold.ingest.judge.arrivals import Arrivals, Bounds
from lakehold.ingest.judge.judgement import Judgement, judgement_of
from lakehold.ingest.marks import Marks
from lakehold.session import quoted_table

log = logging.getLogger(__name__)

_ATTEMPTS = 5


@dataclass(frozen=True)
class BatchIdentity:
    """What every effect of a batch carries in its snapshot summary, so that doing it again is seen and skipped."""

    source: str
    timestamp_ms: int
    offsets: str

    def properties(self, marks: Marks | None, step: int = 1) -> dict[str, str]:
        """The summary's entries; `step` numbers the commits of one table in one batch."""
        found = {
            "lakehold.timestamp": str(self.timestamp_ms),
            "lakehold.source": self.source,
            "lakehold.offsets": self.offsets,
            "lakehold.step": str(step),
        }
        return found if marks is None else {**found, "lakehold.marks": marks.to_json()}


@dataclass(frozen=True)
class Writing:
    """What writing to a table takes.

    Args:
        spark: Gives the session; called only when there is something to write, because one takes seconds to start.
        catalog_name: Spark's name of the lake's catalog.
        buckets: Buckets of a table made without `WITH (BUCKETS = n)`.
        tables: Reads a table's metadata.
        confirm_lease: Raises `LeaseLost` when somebody else owns the source; called before each commit.
        errors: Where bad messages go.
    """

    spark: Callable[[], SparkSession]
    catalog_name: str
    buckets: int
    tables: DataTables
    confirm_lease: Callable[[], None]
    errors: ErrorRecords


@dataclass(frozen=True)
class TableReport:
    """What a batch did to one table. Counts of rows are Iceberg's own, from the snapshot's summary."""

    table: str
    records: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    repeated: int = 0
    errors: int = 0
    snapshot_id: int | None = None


def apply_changes(  # noqa: PLR0913 - a batch, a table, and where to write
    writing: Writing,
    batch: BatchIdentity,
    entry: Entry[Table],
    changes: Changes,
    raw: DataFrame,
    progress: TableProgress,
    *,
    are_few: bool,
    settled: bool,
) -> tuple[TableReport, TableProgress]:
    """Bring the table to the batch's timestamp.

    Args:
        writing: Where to write.
        batch: The batch.
        entry: The table's definition and identity.
        changes: Its changes in this batch.
        raw: The same messages as raw records, for those that go to the error table.
        progress: The table's progress before the batch.
        are_few: They were read in the driver: they are judged there, too.
        settled: See `lakehold.ingest.snapshots.advanced`.

    Raises:
        TableStopped: The table cannot take these changes.
    """
    table = entry.definition
    state = writing.tables.table_state(table.full_name)
    if state is not None:
        evolve.require_own(entry, state.properties)
    has_rows = state is not None and state.row_count != 0
    sequence_number = (
        state.current.sequence_number if state is not None and state.current is not None and has_rows else None
    )
    with judgement_of(
        changes,
        table.envelope,
        Marks.from_json(progress.marks),
        are_few=are_few,
        settled=settled,
        sequence_number=sequence_number,
    ) as found:
        judgement = found
        if state is not None and (done := _effect(state, batch, 1)):
            # Run again after a crash: the table holds the batch already, so what it was before it stands in the summary only.
            judgement = replace(found, marks=Marks.from_json(done.get("lakehold.marks")))
        if table.envelope is Envelope.DEBEZIUM:
            classic.check(table, judgement.arrived)
        if judgement.arrived.errors and table.options.get("on_error") == "fail":
            raise _bad_input(table, judgement)
        columns = _evolve(writing, entry, changes, state)
        reach("after-evolution")
        open_errors = writing.errors.record(batch, table, judgement.frame, raw, judgement.arrived, progress.open_errors)
        reach("after-errors")
        written = _write(writing, batch, table, changes, columns, judgement)
    since_ms = progress.since_ms
    if since_ms is None and judgement.marks.is_whole:
        since_ms = batch.timestamp_ms
    marks = "" if table.envelope is Envelope.UPSERT else judgement.marks.to_json()
    return _report(table, judgement.arrived, written, batch), TableProgress(
        since_ms, open_errors, marks, entry.object_id
    )


def _bad_input(table: Table, judgement: Judgement) -> TableStopped:
    """What a table with `ON ERROR = 'fail'` stops with."""
    first = judgement.frame.filter(F.col(ERROR).isNotNull()).orderBy(OFFSET).first()
    place = f"partition {first[PARTITION]}, offset {first[OFFSET]}: {first[ERROR]}. {first[DETAIL]}" if first else ""
    return TableStopped(
        f'table "{table.full_name}" got {judgement.arrived.errors} messages that cannot be applied',
        table=table.full_name,
        code="bad-input",
        detail=f"The first is of topic {table.topic}, {place}",
        hint="Correct the producer; to keep such messages in mz_catalog.mz_source_errors and go on, create the table "
        "without ON ERROR = 'fail'.",
    )


def _evolve(
    writing: Writing, entry: Entry[Table], changes: Changes, state: TableState | None
) -> tuple[ColumnType, ...]:
    table = entry.definition
    name = quoted_table(writing.catalog_name, table.full_name)
    if state is None:
        buckets = int(str(table.options.get("buckets", writing.buckets)))
        plan = evolve.creation(entry, name, changes.key, changes.columns, buckets)
    else:
        plan = evolve.evolution(table, name, state.schema, changes.columns)
    if plan.statements:
        writing.confirm_lease()
        evolve.run(writing.spark(), plan)
    return plan.columns


def _write(  # noqa: PLR0913
    writing: Writing,
    batch: BatchIdentity,
    table: Table,
    changes: Changes,
    columns: tuple[ColumnType, ...],
    judgement: Judgement,
) -> TableState | None:
    """Commit the changes, unless they are there already. Returns the table as committed; None when nothing was to do."""
    marks = None if table.envelope is Envelope.UPSERT else judgement.marks
    name = quoted_table(writing.catalog_name, table.full_name)

    def first(state: TableState) -> None:
        path = choose(name, changes, judgement, state, writing.tables)
        properties = batch.properties(marks)
        match path:
            case merge.Append():
                merge.append(path, changes, judgement.frame, columns, properties)
            case merge.Merge():
                merge.merge(writing.spark(), path, changes, judgement.frame, columns, properties)

    written = None
    if judgement.arrived.changes_rows:
        reach("before-merge")
        written = _committed(writing, batch, table, 1, first)
        reach("after-merge")
    snapshot = judgement.marks.snapshot
    if snapshot is not None and snapshot.complete and snapshot.replaces_through is not None:
        through = snapshot.replaces_through
        written = _committed(
            writing,
            batch,
            table,
            2,
            lambda _: merge.delete_stale(writing.spark(), name, through, batch.properties(marks, 2)),
        )
    return written


def choose(
    name: str, changes: Changes, judgement: Judgement, state: TableState, tables: DataTables
) -> merge.Append | merge.Merge | None:
    """The cheapest path that is right; None when no row can change."""
    arrived = judgement.arrived
    if state.row_count == 0:
        if arrived.upserts == 0:
            return None
        return merge.Append(name, state.snapshot_id, bounds=None)
    if not (arrived.deletes or arrived.null_key_parts or judgement.replaces_all):
        disjoint = _disjoint(arrived.key_bounds, tables.column_bounds(state, arrived.key_bounds))
        if disjoint:
            return merge.Append(name, state.snapshot_id, disjoint)
    return merge.Merge(
        name,
        changes.key,
        null_safe=arrived.null_key_parts > 0,
        bounds=arrived.key_bounds,
        has_deletes=arrived.deletes > 0,
        has_upserts=arrived.upserts > 0,
        keeps_values=arrived.kept > 0,
        replaces_all=judgement.replaces_all,
    )


def _disjoint(bounds: Mapping[str, Bounds], stored: Mapping[str, ColumnBounds | None]) -> dict[str, Bounds] | None:
    """A key column of which no value of the batch lies within what the table's files hold."""
    for name, b in bounds.items():
        held = stored[name]
        if held is not None and held.excludes(b.lowest, b.highest):
            return {name: b}
    return None


def _committed(
    writing: Writing, batch: BatchIdentity, table: Table, step: int, commit: Callable[[TableState], None]
) -> TableState | None:
    """Run `commit` until the table's history has this batch's step: whatever an attempt's outcome was, the history says it.

    A conflict (another tool compacted, say) and a commit whose answer got lost look alike from here, and both are settled by
    looking. A writer whose lease was lost never gets to a second attempt.
    """
    for attempt in range(_ATTEMPTS):
        state = writing.tables.table_state(table.full_name)
        if state is None:
            raise LakeholdError(
                f'table "{table.full_name}" was dropped while it was written',
                code="table-missing",
                hint="Ingest again: it is made anew if it is still defined.",
            )
        if _effect(state, batch, step) is not None:
            return state
        writing.confirm_lease()
        before = state.snapshot_id
        try:
            commit(state)
        # Spark raises classes of its own for each session kind; which of them mean "not committed" only the history tells.
        except Exception as error:
            now = writing.tables.table_state(table.full_name)
            if now is not None and _effect(now, batch, step) is not None:
                return now
            moved = now is None or now.snapshot_id != before
            if not moved or attempt == _ATTEMPTS - 1:
                raise
            log.info("another writer moved %s first, trying again: %s", table.full_name, str(error).split("\n", 1)[0])
        else:
            now = writing.tables.table_state(table.full_name)
            return now if now is None or now.snapshot_id != before else None
    return None


def _effect(state: TableState, batch: BatchIdentity, step: int) -> Mapping[str, str] | None:
    """The summary of the snapshot that holds this batch's step, if there is one."""
    for snapshot in state.history:
        of_batch = snapshot.is_of(batch.source) and snapshot.summary["lakehold.timestamp"] == str(batch.timestamp_ms)
        if of_batch and snapshot.summary.get("lakehold.step") == str(step):
            return snapshot.summary
    return None


def _report(table: Table, arrived: Arrivals, written: TableState | None, batch: BatchIdentity) -> TableReport:
    found = [_effect(written, batch, step) for step in (1, 2)] if written is not None else []
    summaries = [summary for summary in found if summary is not None]

    def total(*names: str) -> int:
        return sum(int(summary[name]) for summary in summaries for name in names if name in summary)

    merged = "spark.merge-into.num-target-rows-"
    plain = [s for s in summaries if f"{merged}inserted" not in s]
    added = sum(int(s.get("added-records", 0)) for s in plain)
    removed = sum(int(s.get("added-position-deletes", 0)) - int(s.get("removed-position-deletes", 0)) for s in plain)
    return TableReport(
        table=table.full_name,
        records=arrived.records,
        inserted=total(f"{merged}inserted") + added,
        updated=total(f"{merged}updated"),
        deleted=total(f"{merged}deleted") + removed,
        repeated=arrived.repeated,
        errors=arrived.errors,
        snapshot_id=written.snapshot_id if written is not None else None,
    )
