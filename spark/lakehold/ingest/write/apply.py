"""One table's part of a batch: deduplicate its changes, choose a path, write. Read it from top to bottom.

`one_table.py` calls an `Applier` for each table of a batch whose intent is written. High-water marks are the highest log
positions that a table has applied; a batch moves them, and stores them in the summaries of its snapshots.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehold.definitions import Table
from lakehold.errors import SourceBusy, TableStopped, UpstreamError
from lakehold.failpoints import failpoint
from lakehold.iceberg.data_tables import TableState
from lakehold.ingest.arriving_records import TableArrival
from lakehold.ingest.deduplicate.deduplication import Deduplicated, deduplicated
from lakehold.ingest.deduplicate.engine import Rule
from lakehold.ingest.deduplicate.snapshots import SnapshotReadEnds, completed
from lakehold.ingest.envelope.change_columns import DETAIL, ERROR, OFFSET, PARTITION, Changes
from lakehold.ingest.envelope.column_history import values_unknown
from lakehold.ingest.write import direct_load, evolve, merge, multiset, requirements
from lakehold.ingest.write.batch_effects import BatchIdentity, TableReport, effect_of, report_of
from lakehold.ingest.write.write_path import path_of
from lakehold.ingest.write.writing import Writing
from lakehold.model.high_water_marks import HighWaterMarks
from lakehold.model.readers import TableProgress
from lakehold.model.summary_keys import HIGH_WATER_MARKS_PROPERTY
from lakehold.spark_sql import quoted
from lakehold.table_layout import layout_of
from lakehold.tables import vectorized
from lakehold.tables.column_types import ColumnType
from lakehold.tables.evolution import Evolution, Evolving, unfinished
from lakehold.tables.write_audit_publish import unstaged

log = logging.getLogger(__name__)

_KEEPING = 4
"""The step of a batch that keeps the rows of messages in error; it comes before that which deletes rows."""


@dataclass(frozen=True)
class TableBatch:
    """A batch's changes to one table, with the table's progress before the batch.

    Args:
        identity: Identifies the batch in each of its effects.
        arrival: The records for the table.
        progress: The table's progress before the batch.
        read_ends: The offsets up to which the batch reads the table's topic.
    """

    identity: BatchIdentity
    arrival: TableArrival
    progress: TableProgress
    read_ends: SnapshotReadEnds

    @property
    def table(self) -> Table:
        """Return the table's definition."""
        return self.arrival.table

    @property
    def rule(self) -> Rule:
        """Return the rule by which its changes are deduplicated."""
        envelope, high_water_marks = self.table.envelope, self.progress.high_water_marks
        by_position = envelope.has_positions and self.arrival.may_move_keys(high_water_marks)
        return Rule(envelope.skips_applied, by_position, high_water_marks)


class Applier(Protocol):
    """The interface through which changes enter tables: `IcebergApplier`, or a replacement in tests."""

    def prepare(self, arrival: TableArrival, progress: TableProgress) -> None:
        """Read and decode a table's records before the batch's intent is written. Has no effects."""

    def apply(self, batch: TableBatch) -> tuple[TableReport, TableProgress]:
        """Bring a table to a batch's timestamp. Returns the report, and the table's progress after the batch."""

    def finish_snapshot(
        self, identity: BatchIdentity, table: Table, progress: TableProgress, read_ends: SnapshotReadEnds
    ) -> TableProgress:
        """Finish a table's connector snapshot if the batch has read all of it: delete the rows that it replaces.

        To be called when the batch has no more messages for the table. Returns the table's progress after the batch.
        """


@dataclass(frozen=True)
class IcebergApplier:
    """The applier that writes Iceberg tables.

    Args:
        writing: Commits to the tables.
    """

    writing: Writing

    def prepare(self, arrival: TableArrival, progress: TableProgress) -> None:
        """Read and decode a table's records, unless they may be loaded directly: a direct load reads them while it writes."""
        if not _may_load(arrival, progress):
            arrival.carrier  # noqa: B018 - this access reads and decodes

    def apply(self, batch: TableBatch) -> tuple[TableReport, TableProgress]:
        """Bring a table to a batch's timestamp, see `Applier`.

        Raises:
            TableStopped: The table cannot take these changes.
        """
        state = batch.arrival.state
        if state is not None:
            evolve.require_own(batch.arrival.entry, state.properties)
        else:
            evolve.require_kept(batch.table, batch.progress)
        expectation = self._expected(batch, state)
        if expectation is not None:
            try:
                return self._load(batch, state, expectation)
            except direct_load.Unexpected:
                log.info("the changes of %s are not all new rows: deduplicating them", batch.table.full_name)
                state = self.writing.tables.table_state(batch.table.full_name)
        return self._deduplicate(batch, state)

    def finish_snapshot(
        self, identity: BatchIdentity, table: Table, progress: TableProgress, read_ends: SnapshotReadEnds
    ) -> TableProgress:
        """Finish a table's connector snapshot if the batch has read all of it, see `Applier`."""
        before = progress.high_water_marks
        high_water_marks = completed(before, read_ends)
        if high_water_marks != before:
            self._drop_stale(identity, table, high_water_marks)
        return _advanced(progress, table, high_water_marks, identity)

    def _expected(self, batch: TableBatch, state: TableState | None) -> direct_load.Expected | None:
        """Return what a direct load expects of the changes if a sample shows only new rows; None: deduplicate the changes."""
        arrival, progress = batch.arrival, batch.progress
        is_done = state is not None and effect_of(state, batch.identity, 1) is not None
        if is_done or progress.open_errors or not _may_load(arrival, progress) or not arrival.changes.knows_rows:
            return None
        if arrival.changes.is_multiset:
            # Only keys show whether rows are new.
            return None
        return direct_load.expected(arrival.edges, batch.rule, state, self.writing.tables, read_ends=batch.read_ends)

    def _load(
        self, batch: TableBatch, state: TableState | None, expectation: direct_load.Expected
    ) -> tuple[TableReport, TableProgress]:
        """Load the changes directly, without deduplicating them: all are expected to be new rows.

        Raises:
            direct_load.Unexpected: They are not all new rows; none was published.
        """
        table, identity, changes = batch.table, batch.identity, batch.arrival.changes
        requirements.check(table, changes, expectation.edges, len(batch.read_ends.offsets))
        columns = self._evolve(batch, changes, state, expectation.high_water_marks)
        failpoint("after-evolution")
        name = self.writing.name(table.full_name)
        properties = identity.properties(expectation.high_water_marks if table.envelope.has_positions else None)
        statistics = expectation.edges

        def load(state: TableState) -> None:
            nonlocal statistics
            publishing = self.writing.publishing(changes.frame.sparkSession)
            statistics = direct_load.load(publishing, expectation, name, changes, columns, identity, properties, state)

        failpoint("before-merge")
        written = self.writing.commit(identity, table.full_name, 1, load)
        failpoint("after-merge")
        written = self._drop_stale(identity, table, expectation.high_water_marks) or written
        after = _advanced(batch.progress, table, expectation.high_water_marks, identity)
        return _done(batch, changes, report_of(table, statistics, written, identity), after)

    def _deduplicate(self, batch: TableBatch, state: TableState | None) -> tuple[TableReport, TableProgress]:
        """Deduplicate the changes, and write the applied ones to the table."""
        table, identity, carrier = batch.table, batch.identity, batch.arrival.carrier
        has_rows = state is not None and state.row_count != 0
        sequence_number = (
            state.current.sequence_number if state is not None and state.current is not None and has_rows else None
        )
        found = deduplicated(
            carrier, table.envelope, batch.rule, read_ends=batch.read_ends, sequence_number=sequence_number
        )
        if state is not None and (done := effect_of(state, identity, 1) or effect_of(state, identity, _KEEPING)):
            # The batch runs again after a crash, and the table contains it already. Deduplicated again, its changes would all be
            # repeats: take the high-water marks that resulted from the snapshot's summary.
            found = replace(found, high_water_marks=HighWaterMarks.from_json(done.get(HIGH_WATER_MARKS_PROPERTY)))
        requirements.check(table, carrier.changes, found.statistics, len(batch.read_ends.offsets))
        if found.statistics.errors and table.options.get("on_error") == "fail":
            raise _bad_input(table, found)
        is_silent = state is None and _says_nothing(carrier.changes, found)
        columns = () if is_silent else self._evolve(batch, carrier.changes, state, found.high_water_marks)
        failpoint("after-evolution")
        self.writing.confirm_lease()
        heals = table.envelope.has_keys and not carrier.changes.is_multiset
        open_errors = self.writing.errors.record(
            identity, table, found.frame, batch.arrival.raw, found.statistics, batch.progress.open_errors, heals=heals
        )
        failpoint("after-errors")
        written = None
        if not is_silent:
            written = self._write(batch, carrier.changes, columns, found, open_errors=open_errors)
            if carrier.changes.is_multiset and open_errors and found.statistics.deletes:
                open_errors = self.writing.errors.open_of(identity.source, table.full_name)
        after = replace(batch.progress, open_errors=open_errors)
        if not is_silent:
            after = _advanced(after, table, found.high_water_marks, identity)
        return _done(batch, carrier.changes, report_of(table, found.statistics, written, identity), after)

    def _evolve(
        self, batch: TableBatch, changes: Changes, state: TableState | None, reached: HighWaterMarks
    ) -> tuple[ColumnType, ...]:
        """Create the table, or change its schema, as the changes up to the marks `reached` require; return its columns then."""
        table, writing, unknown = batch.table, self.writing, changes.unknown

        def confirm_lease() -> None:
            nonlocal unknown
            writing.confirm_lease()
            if unknown:
                self._snapshot_again(table, unknown)
                unknown = frozenset()

        evolving = Evolving(writing.spark, writing.tables, table.full_name, confirm_lease)
        return evolving.evolve(state, lambda now: self._evolution(batch, changes, now, reached)).columns

    def _evolution(
        self, batch: TableBatch, changes: Changes, state: TableState | None, reached: HighWaterMarks
    ) -> Evolution:
        entry, table, writing = batch.arrival.entry, batch.table, self.writing
        name, layout = writing.name(table.full_name), layout_of(table.options, writing.buckets)
        properties = state.properties if state is not None else {}
        remembered = evolve.history_properties(properties, changes, batch.progress.high_water_marks, reached)
        create = partial(evolve.creation, entry, name, changes.key, changes.columns, layout, remembered=remembered)
        if state is None:
            return create()
        evolve.require_own(entry, properties)
        if self._is_replaceable(table, state) and evolve.is_other(state, changes.key, changes.columns):
            return create(replaces=True)
        partitions = {field.name for spec in state.table.specs().values() for field in spec.fields}
        plan = evolve.evolution(table, name, state.schema, partitions, changes.columns, changes.key, changes.renamed)
        if plan:
            before, after = evolve.remembering(name, state.properties, remembered)
            plan = replace(plan, statements=(*before, *plan.statements, *after))
        return replace(plan, finishing=unfinished(state, name, changes.key, layout))

    def _snapshot_again(self, table: Table, columns: Collection[str]) -> None:
        """Request the values of new columns in older rows, before the columns exist: after a crash they are still new."""
        log.info("table %s is snapshotted again, for the values of %s in older rows", table.full_name, sorted(columns))
        try:
            self.writing.snapshot_again(table)
        except (UpstreamError, SourceBusy) as error:
            raise values_unknown(table, columns, error) from error

    def _request_unsent(
        self, batch: TableBatch, path: merge.Append | merge.Merge, found: Deduplicated, columns: Sequence[ColumnType]
    ) -> None:
        """Request the large values that new rows lack, before the rows are written: after a crash they are still new.

        Raises:
            TableStopped: No database can be asked for them.
        """
        table, frame = batch.table, found.frame
        unsent = found.unsent | merge.unsent(frame.sparkSession, path, batch.arrival.changes, frame, columns)
        if not unsent:
            return
        if table.upstream is None:
            raise requirements.value_unavailable(table, unsent)
        log.warning(
            "table %s is snapshotted again, for values of %s that were not sent", table.full_name, sorted(unsent)
        )
        try:
            self.writing.snapshot_again(table)
        except (UpstreamError, SourceBusy) as error:
            raise requirements.value_unavailable(table, unsent, error) from error

    def _is_replaceable(self, table: Table, state: TableState) -> bool:
        """Return whether a table may be created again: it has no snapshot, and has not changed since `state` was read."""
        now = self.writing.tables.table_state(table.full_name) if state.current is None else None
        return now is not None and now.table.metadata_location == state.table.metadata_location

    def _write(
        self,
        batch: TableBatch,
        changes: Changes,
        columns: tuple[ColumnType, ...],
        found: Deduplicated,
        *,
        open_errors: int,
    ) -> TableState | None:
        """Commit the changes, unless the table has them already. Returns the committed table; None: there was nothing to do."""
        table, identity, writing = batch.table, batch.identity, self.writing
        high_water_marks = found.high_water_marks if table.envelope.has_positions else None
        name, properties = writing.name(table.full_name), identity.properties(high_water_marks)

        def report_missing(missing: DataFrame) -> None:
            if not open_errors:
                raise multiset.row_missing(table, missing)
            # Messages in error may have had these rows.
            writing.errors.record_missing(identity, table, missing, batch.arrival.raw)

        def write(state: TableState) -> None:
            if changes.is_multiset and found.statistics.deletes:
                report = report_missing if found.high_water_marks.shows_snapshot else None
                batch_ = multiset.KeylessBatch(table, changes, columns, found, identity, report)
                multiset.write(batch_, writing.publishing(found.frame.sparkSession), name, state)
                return
            path = path_of(name, changes, found, state, writing.tables)
            if path is not None:
                self._request_unsent(batch, path, found, columns)
            match path:
                case merge.Append():
                    with unstaged(found.frame.sparkSession):
                        merge.append(path, changes, found.frame, columns, properties)
                case merge.Merge():
                    # Use the session that decoded the records: if sources share them, it may be another source's.
                    spark = found.frame.sparkSession
                    reading = vectorized.reading(spark, state)

                    def merging() -> None:
                        with reading():
                            merge.merge(spark, path, changes, found.frame, columns, properties)

                    writing.publishing(spark).run(merging, state, identity.effect(1))

        written = None
        if found.statistics.changes_rows:
            failpoint("before-merge")
            written = writing.commit(identity, table.full_name, 1, write)
            failpoint("after-merge")
        if found.statistics.errors and changes.key and table.envelope.has_positions:
            # A connector snapshot that brings a message in error for a key has the key, so that its row is not stale.
            is_bad = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in (ERROR, *changes.key))
            bad = found.frame.filter(is_bad).select(*map(quoted, changes.key)).distinct()
            key = [column for column in changes.columns if column.name in changes.key]
            kept = writing.rewrite(identity, table.full_name, key, bad, found.high_water_marks, _KEEPING)
            written = kept or written
        return self._drop_stale(identity, table, found.high_water_marks) or written

    def _drop_stale(self, identity: BatchIdentity, table: Table, high_water_marks: HighWaterMarks) -> TableState | None:
        """Delete rows that a complete re-snapshot lacks. Returns the committed table; None: there was nothing to do."""
        snapshot = high_water_marks.snapshot
        if snapshot is None or not snapshot.complete or snapshot.replaces_through is None:
            return None
        return self.writing.remove_stale(identity, table.full_name, snapshot.replaces_through, high_water_marks, 2)


def _may_load(arrival: TableArrival, progress: TableProgress) -> bool:
    """Return whether a direct load is worth a try: a sample can be taken, and the table's state allows all changes to be new."""
    envelope, rows = arrival.table.envelope, 0 if arrival.state is None else arrival.state.row_count
    return envelope.has_keys and arrival.has_edges and direct_load.may_be_new(envelope, progress.high_water_marks, rows)


def _done(
    batch: TableBatch, changes: Changes, report: TableReport, progress: TableProgress
) -> tuple[TableReport, TableProgress]:
    """Return report and progress with the parts of messages that the table skips; the report has only those that are new."""
    left_out = changes.left_out if changes.knows_rows else progress.left_out
    new = tuple(sentence for sentence in left_out if sentence not in progress.left_out)
    object_id = batch.arrival.entry.object_id
    return replace(report, left_out=new), replace(progress, object_id=object_id, left_out=left_out)


def _says_nothing(changes: Changes, found: Deduplicated) -> bool:
    """Return whether a batch shows no columns for the table: all messages are errors, or no schema of a row is known."""
    statistics = found.statistics
    return not changes.knows_rows or statistics.errors == statistics.records


def _advanced(
    progress: TableProgress, table: Table, high_water_marks: HighWaterMarks, batch: BatchIdentity
) -> TableProgress:
    """Return the progress after a batch. A table becomes readable with the first batch that leaves no snapshot half read."""
    since_ms = progress.since_ms
    if since_ms is None and high_water_marks.is_whole:
        since_ms = batch.timestamp_ms
    return replace(
        progress,
        since_ms=since_ms,
        high_water_marks=high_water_marks if table.envelope.has_positions else HighWaterMarks(),
    )


def _bad_input(table: Table, found: Deduplicated) -> TableStopped:
    """Return the error that stops a table with `ON ERROR = 'fail'`."""
    errors = found.frame.filter(F.col(ERROR).isNotNull()).select(PARTITION, OFFSET, ERROR, DETAIL)
    first = errors.orderBy(OFFSET).first()
    place = f"partition {first[PARTITION]}, offset {first[OFFSET]}: {first[ERROR]}. {first[DETAIL]}" if first else ""
    return TableStopped(
        f'table "{table.full_name}" got {found.statistics.errors} messages that cannot be applied',
        table=table.full_name,
        code="bad-input",
        detail=f"The first is of topic {table.topic}, {place}",
        hint="Correct the producer; to record such messages in mz_catalog.mz_source_errors and continue, create the table "
        "without ON ERROR = 'fail'.",
    )
