"""Compares a table with a database, while both go on changing.

A transaction that sees one point in time stays open in the database while its rows are digested. Meanwhile a sync point, written
to the database's log after that point, shows which snapshot of the lake has everything up to the point. Digests of both sides
are compared by buckets of keys, then the rows of buckets that differ, then, read again, the keys of rows that differ.

A table that lakehold does not capture from the database has no sync point: its newest snapshot is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
from pyspark.sql import SparkSession

from lakehold.definitions import ConnectionType, Table
from lakehold.errors import DefinitionError, SourceBusy, UpstreamError, UpstreamUnavailable
from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.model.log_positions import LogPosition
from lakehold.model.readers import MAIN_READER
from lakehold.object_names import full_name_text
from lakehold.progress import Progress
from lakehold.quality.snapshot_at import SnapshotAt, snapshot_at
from lakehold.spark_sql import quoted_table
from lakehold.state.batch_protocol import BatchStore
from lakehold.subscribe.read_leases import ReadLeases
from lakehold.tables.stored_key import stored_key
from lakehold.timeline.timelines import Timelines
from lakehold.upstream.databases import database_of
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.types.field_names import field_name
from lakehold.verify.compared_columns import ComparedColumns, compared_columns
from lakehold.verify.comparison import KEYS_SHOWN, Comparison, Difference, in_order
from lakehold.verify.database_rows import DatabaseRows, TableRows
from lakehold.verify.digest import BucketSums, Numbers
from lakehold.verify.frame_rows import snapshot_frame
from lakehold.verify.lake_rows import LakeRows
from lakehold.verify.mysql_rows import mysql_rows
from lakehold.verify.postgres_rows import postgres_rows
from lakehold.verify.reasons import reason_of_copy, reason_of_standby, reasons
from lakehold.verify.resolving import Rows, difference, resolve
from lakehold.verify.seeming import Seeming, seeming
from lakehold.verify.selected_rows import FirstKey, Selection, by_key, can_be_sought
from lakehold.verify.subject import Against, Subject, Subjects

_REACHED_WITHIN_S = 120.0
_PAUSE_S = 0.3
_SOUGHT_AT_MOST = 1_000
"""Up to so many keys are fetched by their values; for more, all rows are read."""


@dataclass(frozen=True, kw_only=True)
class Verifying:
    """The comparison of the tables of one lake with their databases.

    Args:
        subjects: Finds the tables that can be compared.
        batches: Reads how far the readers of a source are.
        tables: The tables of the catalog.
        timelines: The timelines of tables.
        read_leases: Keep a snapshot while it is read.
        ingest: Ingests a source once.
        spark: Returns the session.
        catalog_name: Name of the lake's catalog in Spark.
        timeout_s: How long a database may take to accept a connection.
    """

    subjects: Subjects
    batches: BatchStore
    tables: DataTables
    timelines: Timelines
    read_leases: ReadLeases
    ingest: Callable[[str], object]
    spark: Callable[[], SparkSession]
    catalog_name: str
    timeout_s: float

    def compare(self, full_name: str, against: Against | None, progress: Progress) -> Comparison:
        """Compare a table with its database.

        Args:
            full_name: Full name of the lake's table.
            against: The table in a database to compare it with; None: the one from which the table is captured.
            progress: Shows how much is read.

        Raises:
            DefinitionError: The table does not exist, is not captured although `against` is None, or has no key; or the
                connection does not exist.
            NotReadable: Its first snapshot is not complete.
            TableStopped: It is stopped, or catches up.
            UpstreamUnavailable: The database does not answer, or its changes do not reach the lake.
            UpstreamRefused: The database refuses a query.
        """
        subject = self.subjects.of(full_name, against)
        while (comparison := self._attempt(subject, progress)) is None:
            pass
        return comparison

    def _attempt(self, subject: Subject, progress: Progress) -> Comparison | None:
        """Compare once; None: the changes up to the sync point changed which columns are compared."""
        with self.open_rows(subject) as rows:
            found = rows.columns()
            if not found:
                raise _missing(subject)
            compared = self._first_compared(subject, found, progress)
            database = DatabaseRows(rows, compared)
            with (
                progress.task(f"read {subject.upstream}", unit="rows", total=rows.estimate or None) as task,
                database.sums_meanwhile(task) as theirs,
            ):
                reached = self.reach_now(subject, progress)
                if self._compared(subject, found) != compared:
                    rows.cancel()
                    return None
                with self.read_leases.acquire([subject.full_name], reached.at_ms):
                    with progress.task(f"read {subject.full_name}", unit="rows", total=None) as lakes_task:
                        lake = self.lake_rows(subject, compared, reached, lambda: theirs.done() and theirs.result())
                        ours = lake.sums(lakes_task)
                    return self._result(subject, database, reached, (theirs.result(), ours), progress)

    def _result(
        self,
        subject: Subject,
        database: DatabaseRows,
        reached: SnapshotAt,
        sums: tuple[BucketSums, BucketSums],
        progress: Progress,
    ) -> Comparison:
        """Find what differs where the sums of the database and of the lake do."""
        theirs, ours = sums
        compared = database.compared
        lake = self.lake_rows(subject, compared, reached)
        differences: list[Difference] = []
        different = unresolved = 0
        is_whole = True
        for found in seeming(database, lake, theirs, ours):
            if different >= KEYS_SHOWN:
                is_whole = False
                break
            reader = _KeyReader(self, subject, compared, found, progress)
            resolved = resolve(found.wanted, found.lake, reader.read_database, reader.read_lake)
            different, unresolved = different + len(resolved.differing), unresolved + len(resolved.unresolved)
            names = [column.name for column in compared.all]
            shown = (difference(*sides, names) for sides in resolved.differing.values())
            differences += list(shown)[: KEYS_SHOWN - len(differences)]
        return Comparison(
            subject.full_name,
            subject.upstream,
            reached.at_ms,
            reached.snapshot_id,
            int(theirs.rows.sum()),
            int(ours.rows.sum()),
            tuple(column.name for column in compared.key),
            tuple(column.name for column in compared.all),
            compared.skipped,
            in_order(differences),
            different,
            is_whole,
            unresolved,
            tuple(self._reasons(subject, differences, compared, database.rows.standby_ms)),
        )

    def _reasons(
        self, subject: Subject, differences: list[Difference], compared: ComparedColumns, standby_ms: int | None
    ) -> Iterator[str]:
        state = self.tables.table_state(subject.full_name)
        history = state.history if state is not None else ()
        if standby_ms is not None:
            yield reason_of_standby(standby_ms)
        if not differences:
            return
        if subject.table is None:
            yield reason_of_copy(subject.full_name, history)
        else:
            progress = self.subjects.progress(subject.table)
            yield from reasons(subject.table, differences, compared.all, subject.database, progress, history)

    def _first_compared(self, subject: Subject, found: Sequence[FoundColumn], progress: Progress) -> ComparedColumns:
        """Return the columns to compare as the lake has them before it has the sync point, if they can be compared then."""
        try:
            return self._compared(subject, found)
        except DefinitionError:
            self.reach_now(subject, progress)
            return self._compared(subject, found)

    def _compared(self, subject: Subject, found: Sequence[FoundColumn]) -> ComparedColumns:
        state = self._state(subject.full_name)
        key = [column.name for column in stored_key(state)] or sorted(state.schema.identifier_field_names())
        if subject.table is None and not key:
            key = [column.name for column in found if column.is_key]
        return compared_columns(
            subject.full_name,
            found,
            lambda name: field_name(name, subject.config),
            state.schema,
            key,
            subject.included,
            subject.database,
            is_captured=subject.table is not None,
            is_whole=subject.table is not None and not subject.table.columns,
        )

    def open_rows(self, subject: Subject) -> AbstractContextManager[TableRows]:
        """Open the rows of the database as they are now."""
        opened = postgres_rows if subject.database is ConnectionType.POSTGRES else mysql_rows
        return opened(subject.login, self.timeout_s, subject.upstream)

    def reach_now(self, subject: Subject, progress: Progress) -> SnapshotAt:
        """Return a snapshot of the lake that has everything that a captured table has in the database now.

        The database's log gets a sync point, and the source is ingested up to it, unless another process does that.
        """
        if subject.table is not None and subject.wanted is not None:
            database = database_of(subject.database, subject.login, self.timeout_s)
            self._reach(subject.table, database.write_sync_point(subject.wanted.signal_table), progress)
        return snapshot_at(self.timelines, subject.full_name)

    def _reach(self, table: Table, sync_point: LogPosition, progress: Progress) -> None:
        deadline_s = time.monotonic() + _REACHED_WITHIN_S
        with progress.task(f"wait for {table.full_name}", unit="ingests", total=None) as task:
            while not self._has(table.source, sync_point):
                if time.monotonic() > deadline_s:
                    raise UpstreamUnavailable(
                        f'changes of source "{table.source}" do not reach the lake',
                        code="lake-behind",
                        detail=f"A sync point was written to the log of the database; after {_REACHED_WITHIN_S:.0f} s the lake "
                        "has not got it.",
                        hint="See lakehold status for the state of the connector; if another process ingests a backlog, wait "
                        "until it is done.",
                    )
                try:
                    self.ingest(table.source)
                except SourceBusy:
                    time.sleep(_PAUSE_S)
                task.advance()
                if not self._has(table.source, sync_point):
                    time.sleep(_PAUSE_S)
        self.subjects.progress(table)

    def _has(self, source: str, sync_point: LogPosition) -> bool:
        main = self.batches.readers(source).get(MAIN_READER)
        return main is not None and main.transactions.has(sync_point)

    def lake_rows(
        self,
        subject: Subject,
        compared: ComparedColumns,
        reached: SnapshotAt,
        go_on: Callable[[], object] = lambda: None,
    ) -> LakeRows:
        """Return the rows of a snapshot of the lake; what `go_on` raises ends their read."""
        columns, name = (
            tuple(column.name for column in compared.all),
            quoted_table(self.catalog_name, subject.full_name),
        )
        return LakeRows(
            self._state(subject.full_name).table,
            reached.snapshot_id,
            columns,
            len(compared.key),
            lambda snapshot_id: snapshot_frame(self.spark(), name, snapshot_id),
            go_on,
            trimmed=frozenset(column.name for column in compared.all if column.has_free_zeros),
        )

    def _state(self, full_name: str) -> TableState:
        state = self.tables.table_state(full_name)
        if state is None:
            raise AssertionError("a table that is readable exists")
        return state


class _KeyReader:
    """Reads the rows of single keys on both sides.

    Args:
        verifying: Opens the sides.
        subject: The table.
        compared: Its compared columns.
        seeming: The rows that seem to differ.
        progress: Shows what the reads wait for.
    """

    def __init__(
        self, verifying: Verifying, subject: Subject, compared: ComparedColumns, seeming: Seeming, progress: Progress
    ) -> None:
        self._verifying = verifying
        self._subject = subject
        self._compared = compared
        self._progress = progress
        self._names = {key: rows[0].names[0] for side in (seeming.lake, seeming.wanted) for key, rows in side.items()}

    def read_database(self, keys: Sequence[int]) -> Rows:
        """Read rows of the database as they are now."""
        digests = _unsigned(keys)
        with self._verifying.open_rows(self._subject) as rows:
            found = DatabaseRows(rows, self._compared).selected(
                Selection(keys=digests, with_columns=True), self._first_key(keys)
            )
        return by_key(found, digests)

    def read_lake(self, keys: Sequence[int]) -> Rows:
        """Read rows of the lake in a snapshot that has everything that the database had at its last read."""
        reached = self._verifying.reach_now(self._subject, self._progress)
        lake, digests = self._verifying.lake_rows(self._subject, self._compared, reached), _unsigned(keys)
        return by_key(lake.selected(Selection(keys=digests, with_columns=True), self._first_key(keys)), digests)

    def _first_key(self, keys: Sequence[int]) -> FirstKey | None:
        column, values = self._compared.key[0], {self._names[key] for key in keys}
        texts = sorted(value for value in values if value is not None and can_be_sought(value, column.text.sought_as))
        if not column.text.sought_as or len(texts) < len(values) or len(texts) > _SOUGHT_AT_MOST:
            return None
        return FirstKey(column.found.name, column.text.sought_as, tuple(texts))


def _missing(subject: Subject) -> UpstreamError:
    grant = f"If it is there, let user {subject.login.user} read it: GRANT SELECT."
    if subject.table is None:
        return UpstreamError(
            f'table "{subject.upstream}" is not in the database at {subject.login.host}:{subject.login.port}',
            code="upstream-table-missing",
            detail=f'"{subject.full_name}" was to be compared with it.',
            hint=f"Write schema and table as the database has them. {grant}",
        )
    return UpstreamError(
        f'table "{subject.upstream}" is not in the database of source "{subject.table.source}"',
        code="upstream-table-missing",
        detail=f'It feeds "{subject.full_name}".',
        hint=f"{grant} If it was dropped, DROP TABLE {full_name_text(subject.full_name)}.",
    )


def _unsigned(keys: Sequence[int]) -> Numbers:
    return np.sort(np.array(keys, np.int64).view(np.uint64))
