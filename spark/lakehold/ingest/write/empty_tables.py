"""Tables that are known to have no rows: they exist with their columns before any message shows the columns.

A captured table has the columns of its table in the database. Other tables have those of their column list; a table with
neither is created when its first message arrives.
"""

from __future__ import annotations

from pyspark.sql.types import DataType

from lakehold.definitions import Table
from lakehold.iceberg.data_tables import TableState
from lakehold.ingest.envelope.column_history import NUMBERS
from lakehold.ingest.envelope.unwrap import columns_without_messages
from lakehold.ingest.envelope.upstream_columns import UpstreamColumns, UpstreamColumnsOf
from lakehold.ingest.write import evolve
from lakehold.ingest.write.writing import Writing
from lakehold.model.lake_definitions import Entry
from lakehold.spark_sql import quoted_table
from lakehold.table_layout import layout_of
from lakehold.tables.column_types import ColumnType
from lakehold.tables.evolution import Evolution, Evolving, unfinished
from lakehold.tables.spark_types import from_spark


def make_empty(writing: Writing, entry: Entry[Table], columns_of: UpstreamColumnsOf) -> None:
    """Create the Iceberg table of a definition without rows, unless it exists or its columns are unknown.

    Its first messages may have other columns: a table that was never written then gets those.

    Args:
        writing: Writes to the lake.
        entry: The table's definition and identity.
        columns_of: Returns the columns of the table in the captured database; none if no database is captured.

    Raises:
        LakeholdError: The database cannot be asked, or its columns cannot be those of a table.
    """
    table = entry.definition
    state = writing.tables.table_state(table.full_name)
    if state is not None:
        evolve.require_own(entry, state.properties)
        return
    found = columns_of(table)
    if table.columns:
        writing.spark()  # parses their types
    columns = _columns(table, found)
    if not columns:
        return
    names = {column.name for column in columns}
    key = tuple(name for name in (table.key or found.key) if name in names)
    columns = columns_without_messages(table, columns, key)
    name = quoted_table(writing.catalog_name, table.full_name)
    layout = layout_of(table.options, writing.buckets)

    def plan(state: TableState | None) -> Evolution:
        if state is None:
            return evolve.creation(entry, name, key, columns, layout, remembered={NUMBERS: found.numbers})
        return Evolution((), columns, finishing=unfinished(state, name, key, layout))

    Evolving(writing.spark, writing.tables, table.full_name, writing.confirm_lease).evolve(state, plan)


def _columns(table: Table, found: UpstreamColumns) -> tuple[ColumnType, ...]:
    """Return the table's columns as a batch would: undeclared key columns, then declared ones; all, if none is declared."""
    if not table.columns:
        return found.columns
    declared = [ColumnType(c.name, from_spark(DataType.fromDDL(c.type))) for c in table.columns]
    names = {column.name for column in declared}
    of_key = [c for c in found.columns if c.name in (table.key or found.key) and c.name not in names]
    return (*of_key, *declared)
