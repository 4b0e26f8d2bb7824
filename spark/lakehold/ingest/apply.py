"""One table's part of a batch: deduplicate its changes, choose a path, write. Reads top to bottom as it happens."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehold.definitions import Table
from lakehold.errors import TableStopped
from lakehold.failpoints import reach
from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.ingest import direct, evolve, merge, requirements
from lakehold.ingest.changes import DETAIL, ERROR, OFFSET, PARTITION, Changes
from lakehold.ingest.commit import committed
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.deduplicate.deduplication import Deduplicated, deduplicated
from lakehold.ingest.effects import BatchIdentity, TableReport, effect_of, report_of
from lakehold.ingest.error_records import ErrorRecords
from lakehold.ingest.path import path_of
from lakehold.ingest.publish import Publishing
from lakehold.ingest.snapshots import Reach, completed
from lakehold.ingest.vectorized import OF_THIS_PROCESS
from lakehold.model.definitions import Entry
from lakehold.model.marks import Marks
from lakehold.model.readers import TableProgress
from lakehold.session import row_by_row
from lakehold.spark_sql import quoted_table

log = logging.getLogger(__name__)


class HeldHistory(Protocol):
    """The holds as a writer meets them: it tags the snapshots that they need, and begins those that wait."""

    def is_held(self, full_name: str) -> bool:
        """Whether some hold is on a table."""

    def keep(self, full_name: str) -> None:
        """Tag what holds need of a table as it is now; nothing of one without holds."""

    def begin(self, full_names: Collection[str]) -> None:
        """Give the holds their time that wait for one of these tables, which are readable now."""


@dataclass(frozen=True)
class Writing:
    """What writing to a table takes.

    Args:
        spark: Gives the session; called only when there is something to write, because one takes seconds to start.
        catalog_name: Spark's name of the lake's catalog.
        buckets: Buckets of a table made without `WITH (BUCKETS = n)`.
        tables: Reads a table's metadata.
        confirm_lease: Raises `LeaseLost` when somebody else owns the source; called before each commit.
        held: Keeps what holds need of a table's history.
        errors: Where bad messages go.
    """

    spark: Callable[[], SparkSession]
    catalog_name: str
    buckets: int
    tables: DataTables
    confirm_lease: Callable[[], None]
    held: HeldHistory
    errors: ErrorRecords


@dataclass(frozen=True)
class Arriving:
    """What a batch has for one table.

    Args:
        changes: The changes.
        raw: The same messages as raw records, for those that go to the error table.
        are_few: They were read in the driver, and their rows stay there.
        edges: Gives the changes of the first and the last records, where there is such a thing.
        reach: How far the batch reads the table's topic.
        knows_all_schemas: See `lakehold.ingest.topic.DecodedTopic`.
    """

    changes: Changes
    raw: DataFrame
    are_few: bool
    edges: Callable[[], Changes] | None
    reach: Reach
    knows_all_schemas: bool


class SchemasUnknown(Exception):
    """Some messages name schemas that were not looked for; nothing was written."""


def apply_changes(  # noqa: PLR0913 - a batch, a table, and where to write
    writing: Writing,
    batch: BatchIdentity,
    entry: Entry[Table],
    arriving: Arriving,
    progress: TableProgress,
    state: TableState | None,
) -> tuple[TableReport, TableProgress]:
    """Bring the table to the batch's timestamp.

    Args:
        writing: Where to write.
        batch: The batch.
        entry: The table's definition and identity.
        arriving: What the batch has for it.
        progress: The table's progress before the batch.
        state: The Iceberg table; None before the first batch.

    Raises:
        TableStopped: The table cannot take these changes.
        SchemasUnknown: Look in the messages how they were written, and apply them again.
    """
    if state is not None:
        evolve.require_own(entry, state.properties)
    how = _expected(writing, batch, entry.definition, arriving, progress, state)
    if how is not None:
        try:
            return _load(writing, batch, entry, arriving, progress, state, how)
        except direct.Unexpected:
            log.info("the changes of %s are not all new rows: deduplicating them", entry.definition.full_name)
            state = writing.tables.table_state(entry.definition.full_name)
    return _deduplicate(writing, batch, entry, arriving, progress, state)


def _expected(  # noqa: PLR0913
    writing: Writing,
    batch: BatchIdentity,
    table: Table,
    arriving: Arriving,
    progress: TableProgress,
    state: TableState | None,
) -> direct.Expected | None:
    marks = progress.marks
    is_done = state is not None and effect_of(state, batch, 1) is not None
    if arriving.edges is None or is_done or progress.open_errors or not arriving.changes.knows_rows:
        return None
    if not direct.may_be_new(table.envelope, marks, 0 if state is None else state.row_count):
        return None
    return direct.expected(arriving.edges(), table.envelope, marks, state, writing.tables, reach=arriving.reach)


def _load(  # noqa: PLR0913
    writing: Writing,
    batch: BatchIdentity,
    entry: Entry[Table],
    arriving: Arriving,
    progress: TableProgress,
    state: TableState | None,
    how: direct.Expected,
) -> tuple[TableReport, TableProgress]:
    """Write rows that are all new.

    Raises:
        direct.Unexpected: They are not.
    """
    table = entry.definition
    requirements.check(table, arriving.changes, how.edges)
    columns = _evolve(writing, entry, arriving.changes, state)
    reach("after-evolution")
    name = quoted_table(writing.catalog_name, table.full_name)
    properties = batch.properties(how.marks if table.envelope.has_positions else None)
    statistics = how.edges

    def load(state: TableState) -> None:
        nonlocal statistics
        statistics = direct.load(_publishing(writing), how, name, arriving.changes, columns, batch, properties, state)

    reach("before-merge")
    written = _committed(writing, batch, table, 1, load)
    reach("after-merge")
    written = _drop_stale(writing, batch, table, how.marks) or written
    after = _advanced(progress, table, how.marks, batch)
    return _done(entry, arriving.changes, report_of(table, statistics, written, batch), after)


def _deduplicate(  # noqa: PLR0913
    writing: Writing,
    batch: BatchIdentity,
    entry: Entry[Table],
    arriving: Arriving,
    progress: TableProgress,
    state: TableState | None,
) -> tuple[TableReport, TableProgress]:
    """Deduplicate the changes, and bring the winners into the table."""
    table = entry.definition
    has_rows = state is not None and state.row_count != 0
    sequence_number = (
        state.current.sequence_number if state is not None and state.current is not None and has_rows else None
    )
    with deduplicated(
        arriving.changes,
        table.envelope,
        progress.marks,
        are_few=arriving.are_few,
        reach=arriving.reach,
        sequence_number=sequence_number,
    ) as decided:
        found = decided
        if found.statistics.unknown_schemas and not arriving.knows_all_schemas:
            raise SchemasUnknown
        if state is not None and (done := effect_of(state, batch, 1)):
            # Run again after a crash: the table holds the batch already, so what it was before it stands in the summary only.
            found = replace(decided, marks=Marks.from_json(done.get("lakehold.marks")))
        requirements.check(table, arriving.changes, found.statistics)
        if found.statistics.errors and table.options.get("on_error") == "fail":
            raise _bad_input(table, found)
        is_silent = state is None and _says_nothing(arriving.changes, found)
        columns = () if is_silent else _evolve(writing, entry, arriving.changes, state)
        reach("after-evolution")
        writing.confirm_lease()
        open_errors = writing.errors.record(
            batch, table, found.frame, arriving.raw, found.statistics, progress.open_errors
        )
        reach("after-errors")
        written = None if is_silent else _write(writing, batch, table, arriving.changes, columns, found)
    after = replace(progress, open_errors=open_errors)
    if not is_silent:
        after = _advanced(after, table, found.marks, batch)
    return _done(entry, arriving.changes, report_of(table, found.statistics, written, batch), after)


def _done(
    entry: Entry[Table], changes: Changes, report: TableReport, progress: TableProgress
) -> tuple[TableReport, TableProgress]:
    """Return the report and the progress, with what the messages have and the table leaves out; reported once, kept on."""
    left_out = changes.left_out if changes.knows_rows else progress.left_out
    new = tuple(sentence for sentence in left_out if sentence not in progress.left_out)
    return replace(report, left_out=new), replace(progress, object_id=entry.object_id, left_out=left_out)


def _says_nothing(changes: Changes, found: Deduplicated) -> bool:
    """Return whether a batch does not say what a table is like: its messages are errors, or no schema of a row is known."""
    statistics = found.statistics
    return not changes.knows_rows or statistics.errors == statistics.records


def settle(
    writing: Writing, batch: BatchIdentity, entry: Entry[Table], progress: TableProgress, reach: Reach
) -> TableProgress:
    """Return the progress of a table after a batch that changes no more rows of it; its snapshot may be complete now."""
    before = progress.marks
    marks = completed(before, reach)
    if marks != before:
        _drop_stale(writing, batch, entry.definition, marks)
    return _advanced(progress, entry.definition, marks, batch)


def _advanced(progress: TableProgress, table: Table, marks: Marks, batch: BatchIdentity) -> TableProgress:
    """Return the progress after a batch: a table is readable from the first one that leaves no snapshot half read."""
    since_ms = progress.since_ms
    if since_ms is None and marks.is_whole:
        since_ms = batch.timestamp_ms
    return replace(progress, since_ms=since_ms, marks=marks if table.envelope.has_positions else Marks())


def _bad_input(table: Table, found: Deduplicated) -> TableStopped:
    """What a table with `ON ERROR = 'fail'` stops with."""
    errors = found.frame.filter(F.col(ERROR).isNotNull()).select(PARTITION, OFFSET, ERROR, DETAIL)
    first = errors.orderBy(OFFSET).first()
    place = f"partition {first[PARTITION]}, offset {first[OFFSET]}: {first[ERROR]}. {first[DETAIL]}" if first else ""
    return TableStopped(
        f'table "{table.full_name}" got {found.statistics.errors} messages that cannot be applied',
        table=table.full_name,
        code="bad-input",
        detail=f"The first is of topic {table.topic}, {place}",
        hint="Correct the producer; to keep such messages in mz_catalog.mz_source_errors and go on, create the table "
        "without ON ERROR = 'fail'.",
    )


def _is_replaceable(writing: Writing, table: Table, state: TableState) -> bool:
    """Return whether nobody has written to a table, not since it was read either."""
    if state.current is not None:
        return False
    now = writing.tables.table_state(table.full_name)
    return now is not None and now.table.metadata_location == state.table.metadata_location


def _evolve(
    writing: Writing, entry: Entry[Table], changes: Changes, state: TableState | None
) -> tuple[ColumnType, ...]:
    table = entry.definition
    name = quoted_table(writing.catalog_name, table.full_name)
    buckets = int(str(table.options.get("buckets", writing.buckets)))
    if state is None:
        plan = evolve.creation(entry, name, changes.key, changes.columns, buckets)
    elif _is_replaceable(writing, table, state) and evolve.is_other(state, changes.key, changes.columns):
        plan = evolve.creation(entry, name, changes.key, changes.columns, buckets, replaces=True)
    else:
        partitions = {field.name for spec in state.table.specs().values() for field in spec.fields}
        plan = evolve.evolution(table, name, state.schema, partitions, changes.columns)
        if state.current is None and state.table.sort_order().is_unsorted:
            # The process that made the table was killed before it could say so: CREATE TABLE cannot.
            plan = replace(plan, statements=(evolve.ordering(name, changes.key), *plan.statements))
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
    found: Deduplicated,
) -> TableState | None:
    """Commit the changes, unless they are there already. Returns the table as committed; None when nothing was to do."""
    marks = found.marks if table.envelope.has_positions else None
    name = quoted_table(writing.catalog_name, table.full_name)

    def first(state: TableState) -> None:
        path = path_of(name, changes, found, state, writing.tables)
        properties = batch.properties(marks)
        match path:
            case merge.Append():
                merge.append(path, changes, found.frame, columns, properties)
            case merge.Merge():
                rows = found.frame
                spark = writing.spark()
                reading = nullcontext() if OF_THIS_PROCESS.take(state) else row_by_row(spark)

                def merging() -> None:
                    with reading:
                        merge.merge(spark, path, changes, rows, columns, properties)

                _publishing(writing).run(merging, state, batch.effect(1))

    written = None
    if found.statistics.changes_rows:
        reach("before-merge")
        written = _committed(writing, batch, table, 1, first)
        reach("after-merge")
    return _drop_stale(writing, batch, table, found.marks) or written


def _drop_stale(writing: Writing, batch: BatchIdentity, table: Table, marks: Marks) -> TableState | None:
    """Delete what a snapshot that is whole now did not bring. Returns the table as committed; None when nothing was to do."""
    snapshot = marks.snapshot
    if snapshot is None or not snapshot.complete or snapshot.replaces_through is None:
        return None
    return remove_stale(writing, batch, table, snapshot.replaces_through, marks, 2)


def remove_stale(  # noqa: PLR0913
    writing: Writing, batch: BatchIdentity, table: Table, through: int, marks: Marks, step: int
) -> TableState | None:
    """Delete the rows that were last changed at or before a sequence number of the table.

    Args:
        writing: Where to write.
        batch: The batch.
        table: The table.
        through: The sequence number.
        marks: Of the table behind it.
        step: Of the batch.

    Returns:
        The table as committed; None when nothing was to do.
    """
    name, properties = quoted_table(writing.catalog_name, table.full_name), batch.properties(marks, step)

    def delete(state: TableState) -> None:
        _publishing(writing).run(
            lambda: merge.delete_stale(writing.spark(), name, through, properties), state, batch.effect(step)
        )

    return _committed(writing, batch, table, step, delete)


def _publishing(writing: Writing) -> Publishing:
    return Publishing(writing.spark(), writing.tables, writing.confirm_lease, writing.held.is_held)


def _committed(
    writing: Writing, batch: BatchIdentity, table: Table, step: int, commit: Callable[[TableState], None]
) -> TableState | None:
    writing.held.keep(table.full_name)
    found = committed(writing.tables, writing.confirm_lease, batch, table.full_name, step, commit)
    writing.held.keep(table.full_name)
    return found
