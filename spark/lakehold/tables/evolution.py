"""Creates tables that are merged into, and changes their columns. Statements are planned first, and each can be repeated."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from pyspark.sql import SparkSession

from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.spark_errors import is_conflict, is_sparks
from lakehold.spark_sql import alter_table, quoted, table_properties
from lakehold.table_layout import Layout
from lakehold.tables.column_types import ColumnType, spark_text
from lakehold.tables.file_layout import FileLayout, LayoutUnfit, file_layout
from lakehold.tables.unify import same
from lakehold.tables.write_audit_publish import TABLE_PROPERTIES

log = logging.getLogger(__name__)

_ATTEMPTS = 5

PROPERTIES = {
    "format-version": "3",
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.metadata.compression-codec": "gzip",
    # Files are ordered by key, and a merge reads the row groups that can hold its keys: an eighth of Iceberg's default.
    "write.parquet.row-group-size-bytes": str(16 * 1024 * 1024),
    **TABLE_PROPERTIES,
}


@dataclass(frozen=True)
class Evolution:
    """The changes to a table's schema that make it the schema of a batch.

    Args:
        statements: SQL to run first, in order.
        columns: The table's columns afterwards.
        is_new: The table is new, and its namespace may be.
        added: Columns with an initial value to add after that, which SQL cannot.
        finishing: SQL to run last, in order.
    """

    statements: tuple[str, ...]
    columns: tuple[ColumnType, ...]
    is_new: bool = False
    added: tuple[ColumnType, ...] = ()
    finishing: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.statements or self.added or self.finishing)


def create_statements(
    name: str,
    key: Sequence[str],
    columns: Sequence[ColumnType],
    layout: Layout,
    properties: Mapping[str, str],
) -> tuple[str, ...]:
    """Write the statements that create a table which is merged into; its columns have no initial value.

    `name` is quoted; `properties` are added to the properties of all such tables.

    Raises:
        LayoutUnfit: The table cannot have the layout.
    """
    files = file_layout(layout, key, columns)
    return (create_statement(name, columns, files, properties, "CREATE TABLE IF NOT EXISTS"), *files.statements(name))


def create_statement(
    name: str, columns: Sequence[ColumnType], files: FileLayout, properties: Mapping[str, str], create: str
) -> str:
    """Write the statement that creates a table with the columns that have no initial value; it begins with the words `create`."""
    definitions = ", ".join(f"{quoted(c.name)} {spark_text(c.type)}" for c in columns if c.initial is None)
    written = table_properties({**PROPERTIES, **files.properties, **properties})
    return f"{create} {name} ({definitions}) USING iceberg{files.clause} TBLPROPERTIES {written}"


def altered(table: str, path: str, old: IcebergType, new: IcebergType) -> list[str]:
    """Write statements that turn `old` at `path` into `new`, which `unify` found; Spark names parts of nested types by dots."""
    if same(old, new):
        return []
    match old, new:
        case StructType(), StructType():
            stored = {f.name: f.field_type for f in old.fields}
            statements = []
            for field in new.fields:
                inner = f"{path}.{quoted(field.name)}"
                if field.name in stored:
                    statements += altered(table, inner, stored[field.name], field.field_type)
                else:
                    statements.append(alter_table(table, f"ADD COLUMN {inner} {spark_text(field.field_type)}"))
            return statements
        case ListType(), ListType():
            return altered(table, f"{path}.element", old.element_type, new.element_type)
        case MapType(), MapType():
            return altered(table, f"{path}.value", old.value_type, new.value_type)
        case _:
            return [alter_table(table, f"ALTER COLUMN {path} TYPE {spark_text(new)}")]


def unfinished(state: TableState, name: str, key: Sequence[str], layout: Layout) -> tuple[str, ...]:
    """Return statements that a killed process left to be run when it created a table, which was never written since."""
    if state.current is not None:
        return ()
    try:
        files = file_layout(layout, key, [ColumnType(f.name, f.field_type) for f in state.schema.fields])
    except LayoutUnfit:
        # The table had the columns when it was created, and they were renamed since.
        return ()
    return files.statements(name, len(state.table.spec().fields), is_sorted=not state.table.sort_order().is_unsorted)


@dataclass(frozen=True)
class Evolving:
    """Evolves one table beside other writers.

    Spark does not repeat a change of columns if another commit comes between its read and its commit of the table: holds move
    their tags each second, for example.

    Args:
        spark: Returns the session; called only if something changes.
        tables: Reads the table's metadata, and adds columns with initial values.
        full_name: The table; it need not exist yet.
        confirm_lease: Raises `LeaseLost` if another process owns the table's source; called before each attempt.
    """

    spark: Callable[[], SparkSession]
    tables: DataTables
    full_name: str
    confirm_lease: Callable[[], None]

    def evolve(self, state: TableState | None, plan: Callable[[TableState | None], Evolution]) -> Evolution:
        """Plan the changes of the table and make them; plan them again if another writer commits first.

        Each change can be repeated, also after a crash, because it is planned from the table's schema.

        Args:
            state: The table as it was read last.
            plan: Plans the changes of the table in a state; None: it does not exist.

        Returns:
            The changes that were made last.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._make(plan(state))
            except Exception as error:
                if not (is_sparks(error) and is_conflict(str(error))):
                    raise
                log.info("another writer changed %s first, planning its columns again", self.full_name)
                state = self.tables.table_state(self.full_name)
        return self._make(plan(state))

    def _make(self, evolution: Evolution) -> Evolution:
        if evolution:
            self.confirm_lease()
            _apply(self.spark(), self.tables, self.full_name, evolution)
        return evolution


def _apply(spark: SparkSession, tables: DataTables, full_name: str, evolution: Evolution) -> None:
    if evolution.is_new:
        tables.create_namespace(full_name.rpartition(".")[0])
    for statement in evolution.statements:
        spark.sql(statement)
    if evolution.added:
        fields = [NestedField(0, c.name, c.type, required=False, initial_default=c.initial) for c in evolution.added]
        tables.add_columns(full_name, fields)
    for statement in evolution.finishing:
        spark.sql(statement)
