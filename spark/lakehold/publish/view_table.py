"""The table of a materialized view: each timestamp of its query's output is merged into it, and published as one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyiceberg.catalog import Catalog

from lakehold.definitions import MaterializedView
from lakehold.errors import DefinitionError
from lakehold.iceberg.data_tables import TableState
from lakehold.model.summary_keys import RESTARTED_PROPERTY, SINCE_PROPERTY, SOURCE_PROPERTY, TIMESTAMP_PROPERTY
from lakehold.object_names import full_name_text
from lakehold.publish.derived_table import Published
from lakehold.publish.key_violations import KEY_VIOLATIONS, KeyViolations
from lakehold.publish.merged_table import MergedTable, MergeWriting, spelt
from lakehold.publish.view_changes import Appended, Changes, KeyedChanges, KeyViolated, RowChanges
from lakehold.publish.view_columns import column_types, followed
from lakehold.spark_sql import alter_table, table_properties
from lakehold.subscribe.query_columns import QUERY_COLUMNS, QueryColumns, to_text
from lakehold.table_layout import FORMAT_VERSION, PARTITIONED_BY, SORTED_BY, layout_of
from lakehold.tables import vectorized
from lakehold.tables.column_types import ColumnType
from lakehold.tables.evolution import Evolution, create_statements
from lakehold.tables.file_layout import LayoutUnfit
from lakehold.tables.stored_key import KEY, key_text, stored_columns


class ViewTable(MergedTable):
    """The table of one materialized view.

    Args:
        view: The view.
        object_id: Its object id.
        writing: Writes to the table.
    """

    owner_property = SOURCE_PROPERTY
    hint = "Give the view another name, or drop the table."

    def __init__(self, catalog: Catalog, view: MaterializedView, object_id: str, writing: MergeWriting) -> None:
        super().__init__(catalog, view.full_name, object_id, writing)
        self._view = view

    def prepare(
        self,
        columns: pa.Schema,
        read: QueryColumns | None,
        confirm: Callable[[], None],
        filled: Collection[str] = (),
    ) -> None:
        """Create the table with the `columns` of the query's result, or follow their changes.

        Args:
            columns: The columns.
            read: The columns of tables that the query reads; None before a restart, whose commit records them.
            confirm: Raises `LeaseLost` if another process has the lease.
            filled: Names of columns that have a value in rows which are older than the column.

        Raises:
            DefinitionError: A table cannot have the columns, or cannot follow the change.
            KeyViolated: The table has kept rows with equal keys, and the view no longer keeps such rows.
        """
        wanted = column_types(self.full_name, columns)
        properties = {KEY: key_text(spelt(self._view.unique_key, wanted))}
        if read is not None:
            properties[QUERY_COLUMNS] = to_text(read)

        def plan(state: TableState | None) -> Evolution:
            if state is None:
                # The files are ordered by the key, and so found by it, whether it is unique or not.
                key = spelt(self._view.key, wanted)
                statements = self._create_statements(key, wanted, {SOURCE_PROPERTY: self._object_id, **properties})
                return Evolution(statements, wanted, is_new=True)
            if self._view.unique_key and (count := int(state.properties.get(KEY_VIOLATIONS, 0))):
                raise _kept(self.full_name, count)
            statements = followed(self.full_name, self._name, stored_columns(state), wanted, filled)
            if new := {name: value for name, value in properties.items() if state.properties.get(name) != value}:
                statements += (alter_table(self._name, f"SET TBLPROPERTIES {table_properties(new)}"),)
            return Evolution(statements, wanted)

        self._evolve(plan, confirm)

    def _create_statements(
        self, key: Sequence[str], wanted: Sequence[ColumnType], properties: Mapping[str, str]
    ) -> tuple[str, ...]:
        view = self._view
        options = {PARTITIONED_BY: view.partitioned_by, SORTED_BY: view.sorted_by, FORMAT_VERSION: view.format_version}
        layout = layout_of(options, self._writing.buckets)
        try:
            return create_statements(self._name, key, wanted, layout, properties)
        except LayoutUnfit as fault:
            raise DefinitionError(
                f'materialized view "{self.full_name}" {fault}',
                code="layout-unfit",
                detail=fault.detail,
                hint=f"DROP MATERIALIZED VIEW {full_name_text(self.full_name)}, and create it with other options.",
            ) from None

    def refresh(  # noqa: PLR0913 - a timestamp, its rows, and how it is committed
        self,
        timestamp_ms: int,
        chunks: Iterable[pa.Table],
        read: QueryColumns,
        after: Published | None,
        becomes: Published,
        confirm: Callable[[], None],
        *,
        replaces: bool = False,
    ) -> int:
        """Merge the output of one timestamp into the table, and return the table's snapshot afterwards.

        Args:
            timestamp_ms: The timestamp.
            chunks: The output; `prepare` was called with its columns.
            read: The columns of tables that the query reads.
            after: The progress that the commit continues from.
            becomes: The progress that it records.
            confirm: Raises `LeaseLost` if another process has the lease.
            replaces: Whether the output is a new snapshot, which replaces all rows.

        Raises:
            LeaseLost: Another publisher has published more, or has taken over.
            CommitConflict: Another writer changed the table meanwhile; nothing was published.
            KeyViolated: A key is not unique, and the view does not keep such rows.
        """
        state = self._state()
        self.check_continues(state.table, after, becomes.epoch)
        summary = {SOURCE_PROPERTY: self._object_id, TIMESTAMP_PROPERTY: str(timestamp_ms)}
        if replaces:
            summary[RESTARTED_PROPERTY] = str(timestamp_ms)
        changes = self._changes(state, summary, is_first=after is None or replaces)
        properties = {QUERY_COLUMNS: to_text(read)}
        if after is None:
            properties[SINCE_PROPERTY] = str(timestamp_ms)
        violations = self._violations(state, changes, is_first=after is None or replaces)
        writes = _writes(changes, chunks, properties, violations, replaces=replaces)
        return self._run_together(writes, properties, becomes, changes, confirm)

    def key_violations(self) -> int:
        """Return how many keys have several rows now."""
        table = self.table()
        return int(table.properties.get(KEY_VIOLATIONS, 0)) if table is not None else 0

    def _violations(self, state: TableState, changes: Changes, *, is_first: bool) -> KeyViolations | None:
        if self._view.key == self._view.unique_key:
            return None
        columns = {column.name: column for column in changes.columns}
        key = [columns[name] for name in spelt(self._view.key, changes.columns)]
        count = 0 if is_first else int(state.properties.get(KEY_VIOLATIONS, 0))
        return KeyViolations(self._name, key, count, changes.reading)

    def _changes(self, state: TableState, summary: dict[str, str], *, is_first: bool) -> Changes:
        spark, columns = self._writing.spark(), stored_columns(state)
        kind = Appended if is_first else KeyedChanges if self._view.unique_key else RowChanges
        return kind(
            spark=spark,
            full_name=self.full_name,
            name=self._name,
            columns=columns,
            key=spelt(self._view.unique_key, columns),
            summary=summary,
            reading=vectorized.reading(spark, state),
        )


def _kept(full_name: str, count: int) -> KeyViolated:
    several = "1 key" if count == 1 else f"{count:,} keys"
    return KeyViolated(
        f'{several} of materialized view "{full_name}" have more than one row',
        detail="The view kept such rows until ON KEY VIOLATION was set back to 'stop'. It shows what it showed before.",
        hint=f"ALTER MATERIALIZED VIEW {full_name_text(full_name)} SET (ON KEY VIOLATION = 'keep'), and refresh it until SHOW "
        "MATERIALIZED VIEWS has no key_violations: then it can stop.",
    )


def _writes(
    changes: Changes,
    chunks: Iterable[pa.Table],
    properties: dict[str, str],
    violations: KeyViolations | None,
    *,
    replaces: bool,
) -> Iterator[Callable[[], None]]:
    """Yield the statements of a timestamp; when all have run, `properties` have the number of violated keys."""
    if replaces:
        yield changes.clear
    for chunk in chunks:
        if chunk.num_rows:
            if violations is not None:
                yield partial(violations.add, *changes.counted(chunk))
            yield from changes.writes(chunk)
    if violations is not None:
        properties[KEY_VIOLATIONS] = str(violations.count)
