"""The table of a subscription with ENVELOPE HISTORY: a row for each range of time in which a key had the same values.

Changes are merged by the engine of materialized views. A commit takes several timestamps, because the ranges show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import LessThan, Reference
from pyiceberg.expressions.literals import literal

from lakehold.errors import CommitConflict, LakeholdError
from lakehold.iceberg.data_tables import TableState
from lakehold.model.summary_keys import RESTARTED_PROPERTY, SUBSCRIPTION_PROPERTY, TIMESTAMP_PROPERTY
from lakehold.publish.derived_table import OutputOfSubscription, Published
from lakehold.publish.history_ranges import (
    IS_CURRENT,
    RANGE_COLUMNS,
    VALID_FROM,
    VALID_TO,
    Ranges,
    RangeState,
    SeveralRows,
    ranges,
    value_names,
)
from lakehold.publish.merged_table import MergedTable, MergeWriting, spelt
from lakehold.publish.output_columns import DAY_MS, ColumnsUnfit, as_stored, check_has, stored_names, unfit_refused
from lakehold.publish.view_changes import ROW_STATE, KeyedChanges, shown_key
from lakehold.publish.view_columns import types_of
from lakehold.session import snapshot_properties
from lakehold.spark_sql import alter_table, quoted
from lakehold.subscribe.query_columns import QUERY_COLUMNS, QueryColumns, to_text
from lakehold.subscribe.statement import HistoryEnvelope
from lakehold.table_layout import Layout
from lakehold.tables import vectorized
from lakehold.tables.column_types import ColumnType
from lakehold.tables.evolution import Evolution, altered, create_statements
from lakehold.tables.stored_key import KEY, key_text, stored_columns
from lakehold.tables.unify import TypeConflict, unify

_MERGED_ROWS = 200_000
"""Rows after which a statement merges them. Fewer are merged if no more are available."""


@dataclass(frozen=True)
class Merge:
    """The content of one commit.

    Attributes:
        timestamp_ms: The last timestamp of the changes.
        chunks: The changes, rows of ENVELOPE DEBEZIUM; `HistoryTable.prepare` was called with their columns.
        after: The progress that the commit continues from; None if nothing has been published.
        becomes: The progress that it records.
        columns: The columns of tables that the changes come from.
        restarted_at_ms: Time of a new snapshot with which the changes begin, after a lapse; None for other commits.
    """

    timestamp_ms: int
    chunks: Iterable[pa.Table]
    after: Published | None
    becomes: Published
    columns: QueryColumns
    restarted_at_ms: int | None = None


class HistoryTable(MergedTable, OutputOfSubscription):
    """The history that one subscription keeps.

    Args:
        catalog: The lake's catalog.
        full_name: The table's full name; the table need not exist yet.
        object_id: Object id of the subscription.
        envelope: Says which columns are the key, and which are tracked.
        writing: Writes to the table.
    """

    owner_property = SUBSCRIPTION_PROPERTY
    hint = "Choose another one: CREATE SUBSCRIPTION … INTO namespace.table; or drop the table."

    def __init__(
        self, catalog: Catalog, full_name: str, object_id: str, envelope: HistoryEnvelope, writing: MergeWriting
    ) -> None:
        super().__init__(catalog, full_name, object_id, writing)
        self._envelope = envelope

    def prepare(self, columns: pa.Schema, confirm: Callable[[], None]) -> None:
        """Create the table with the `columns` of what is read and those of ranges, or add columns that it lacks.

        Args:
            columns: The columns of what is read.
            confirm: Raises `LeaseLost` if another process has the lease.

        Raises:
            DefinitionError: A table cannot have the columns, a column cannot change to its new type, or the table lost one of its
                key or of ranges.
        """

        def plan(state: TableState | None) -> Evolution:
            self.check(columns, state.schema.column_names if state is not None else ())
            try:
                if state is not None:
                    check_has(self.full_name, state.schema.column_names, [*self._envelope.key, *RANGE_COLUMNS.names])
                    return self._followed(
                        stored_columns(state), types_of(as_stored(_with_ranges(columns), state.schema))
                    )
                return self._creation(types_of(_with_ranges(columns)))
            except (TypeError, TypeConflict) as error:
                raise ColumnsUnfit(str(error)) from None

        with unfit_refused(self.full_name):
            self._evolve(plan, confirm)

    def _creation(self, wanted: Sequence[ColumnType]) -> Evolution:
        key, named = spelt(self._envelope.key, wanted), {column.name: column for column in wanted}
        columns_in_order = tuple([*(named.pop(name) for name in key), *named.values()])
        properties = {SUBSCRIPTION_PROPERTY: self._object_id, KEY: key_text(key)}
        layout = Layout(self._writing.buckets)
        statements = create_statements(self._name, key, columns_in_order, layout, properties)
        return Evolution(statements, columns_in_order, is_new=True)

    def check(self, columns: pa.Schema, stored: Iterable[str] = ()) -> None:
        """Check that what is read has the columns of the envelope, and none that ranges add.

        Args:
            columns: The columns of what is read.
            stored: The columns of the table, if it exists.

        Raises:
            DefinitionError: A column does not exist or is ambiguous, or a table cannot have it.
        """
        self._envelope.tracked(columns.names, stored)
        with unfit_refused(self.full_name):
            _with_ranges(columns)

    def remove_rows_before(self, before_ms: int, confirm: Callable[[], None]) -> bool:
        """Remove ranges that ended on days before `before_ms`; return false if a concurrent commit prevented it."""
        day_ms = before_ms - before_ms % DAY_MS
        ended = LessThan(
            term=Reference(VALID_TO), value=literal(datetime.fromtimestamp(day_ms / 1000, UTC).isoformat())
        )
        if self._has(ended):
            spark, state = self._writing.spark(), self._state()

            def delete() -> None:
                # The commit has no timestamp of its own: it changes nothing that RETAIN OUTPUT keeps.
                with vectorized.reading(spark, state)():
                    spark.sql(f"DELETE FROM {self._name} WHERE {VALID_TO} < timestamp_millis({day_ms})")

            try:
                self._publishing(confirm).run_together([delete], state)
            except CommitConflict:
                return False
        return True

    def merge(self, merge: Merge, confirm: Callable[[], None]) -> int:
        """Merge changes into the table, and return the table's snapshot afterwards.

        Args:
            merge: The content of the commit.
            confirm: Raises `LeaseLost` if another process has the lease.

        Raises:
            LeaseLost: Another publisher has published more, or has taken over.
            CommitConflict: Another writer changed the table meanwhile; nothing was published.
            LakeholdError: A key is not unique.
        """
        state = self._state()
        self.check_continues(state.table, merge.after, merge.becomes.epoch)
        changes = self._changes(state, merge)
        restarted = merge.restarted_at_ms
        properties = {QUERY_COLUMNS: to_text(merge.columns)}
        if restarted is not None:
            properties[RESTARTED_PROPERTY] = str(restarted)
        return self._run_together(changes.statements(merge.chunks), properties, merge.becomes, changes, confirm)

    def _followed(self, stored: Iterable[ColumnType], wanted: Sequence[ColumnType]) -> Evolution:
        """Add columns, and widen types. PyIceberg, which does so for other outputs, cannot write tables of format 3."""
        types = {column.name: column.type for column in stored}
        statements: list[str] = []
        for column in wanted:
            if column.name in types:
                old = types[column.name]
                new = unify(old, column.type, column.name)
                statements += altered(self._name, quoted(column.name), old, new)
            else:
                statements.append(alter_table(self._name, f"ADD COLUMN {quoted(column.name)} {column.spark_type}"))
        return Evolution(tuple(statements), tuple(wanted))

    def _changes(self, state: TableState, merge: Merge) -> HistoryChanges:
        spark, columns = self._writing.spark(), stored_columns(state)
        return HistoryChanges(
            spark=spark,
            full_name=self.full_name,
            name=self._name,
            columns=columns,
            key=spelt(self._envelope.key, columns),
            summary={SUBSCRIPTION_PROPERTY: self._object_id, TIMESTAMP_PROPERTY: str(merge.timestamp_ms)},
            reading=vectorized.reading(spark, state),
            envelope=self._envelope,
            is_first=merge.after is None,
            restarted_at_ms=merge.restarted_at_ms,
        )


@dataclass(frozen=True, kw_only=True)
class HistoryChanges(KeyedChanges):
    """Changes of a history: they end current ranges, and begin others.

    Args:
        envelope: Says which columns are tracked.
        is_first: Whether the table has no ranges yet.
        restarted_at_ms: Time of a new snapshot with which the changes begin, after a lapse: it ends all current ranges.
    """

    envelope: HistoryEnvelope
    is_first: bool
    restarted_at_ms: int | None

    def statements(self, chunks: Iterable[pa.Table]) -> Iterator[Callable[[], None]]:
        """Yield the statements that bring all `chunks` into the table, to be run one after the other.

        Rows of a snapshot that finds no current ranges are appended: merging them would read all that earlier chunks wrote.
        """
        if self.restarted_at_ms is not None:
            at = f"timestamp_millis({self.restarted_at_ms})"
            # Ranges of the snapshot's own time are in the snapshot, too: ended then, they would have no duration.
            yield partial(self._run, f"DELETE FROM {self.name} WHERE {IS_CURRENT} AND {VALID_FROM} >= {at}")
            ended = f"SET {VALID_TO} = {at}, {IS_CURRENT} = false"
            yield partial(self._run, f"UPDATE {self.name} {ended} WHERE {IS_CURRENT}")
        appended_ms: int | None = None
        for rows in _gathered(chunks):
            first_ms = rows.column(0)[0].as_py()
            appended_ms = first_ms if appended_ms is None else appended_ms
            found = self._ranges(rows)
            if (self.is_first or self.restarted_at_ms is not None) and first_ms == appended_ms:
                # A history that begins without a snapshot has no ranges that could end.
                beginning = found.rows.filter(pc.not_equal(found.states, RangeState.END))
                yield partial(self._append, self._frame(self._fitted(beginning)))
            else:
                yield partial(self._merge_ranges, found)

    def _ranges(self, rows: pa.Table) -> Ranges:
        names = value_names(rows.schema, len(self.key))
        try:
            found = ranges(rows, len(self.key), self.envelope.tracked([*self.key, *names], self._names))
        except SeveralRows as several:
            raise self._violation([shown_key(several.key)]) from None
        return replace(found, rows=found.rows.rename_columns(stored_names(found.rows.column_names, self._names)))

    def _fitted(self, rows: pa.Table) -> pa.Table:
        """Add columns that the table has and the rows do not: what is read lost them."""
        lost = [column.name for column in self.columns if column.name not in rows.column_names]
        for name in lost:
            rows = rows.append_column(name, pa.nulls(rows.num_rows))
        return rows

    def _merge_ranges(self, found: Ranges) -> None:
        rows = self._fitted(found.rows).append_column(ROW_STATE, found.states)
        written = [quoted(name) for name in found.rows.column_names]
        updated = [name for name in written if name != quoted(VALID_FROM)]
        ends, is_end = (VALID_TO, IS_CURRENT), f"s.{ROW_STATE} = '{RangeState.END}'"
        clauses = [
            self._refused(),
            f"WHEN MATCHED AND {is_end} THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in ends)}",
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in updated)}",
            # The table does not know a key whose first change ends a range if the history began without a snapshot.
            f"WHEN NOT MATCHED AND NOT {is_end} "
            f"THEN INSERT ({', '.join(written)}) VALUES ({', '.join(f's.{name}' for name in written)})",
        ]
        self._run_merge(rows, clauses, f"t.{IS_CURRENT}", f"s.{ROW_STATE} <> '{RangeState.NEW}'")

    def _run(self, statement: str) -> None:
        with self.reading(), snapshot_properties(self.spark, self.summary):
            self.spark.sql(statement)

    def _violation(self, keys: Sequence[str], count: int = 1) -> LakeholdError:
        several = "a key" if count == 1 else f"{count} keys"
        named = ", ".join(f"({key})" for key in keys)
        return LakeholdError(
            f'{several} of the history "{self.full_name}" would have more than one row at a time',
            code="history-key",
            detail=f"By {self.summary[TIMESTAMP_PROPERTY]} several rows have the key {named}. Nothing of it was written.",
            hint="Drop the subscription with CASCADE, and create it with a KEY that tells all rows apart.",
        )


def _gathered(chunks: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join chunks up to a number of rows; those of the first timestamp are joined with no others."""
    waiting: list[pa.Table] = []
    rows, first_ms = 0, None
    for chunk in chunks:
        if not chunk.num_rows:
            continue
        timestamp_ms = chunk.column(0)[0].as_py()
        if waiting and (rows >= _MERGED_ROWS or waiting[-1].column(0)[0].as_py() == first_ms != timestamp_ms):
            yield pa.concat_tables(waiting)
            waiting, rows = [], 0
        first_ms = timestamp_ms if first_ms is None else first_ms
        waiting.append(chunk)
        rows += chunk.num_rows
    if waiting:
        yield pa.concat_tables(waiting)


def _with_ranges(columns: pa.Schema) -> pa.Schema:
    """Add the columns of ranges.

    Raises:
        ColumnsUnfit: What is read has a column with such a name.
    """
    taken = [name for name in columns.names if name.lower() in RANGE_COLUMNS.names]
    if taken:
        raise ColumnsUnfit(f"ENVELOPE HISTORY adds a column {taken[0].lower()}, and what is read has one")
    return pa.schema(list(chain(columns, RANGE_COLUMNS)))
