"""Evolves a table's schema with its messages: creates it, adds and widens columns; other changes stop the table.

A column that was dropped upstream stays and is null from then on. Columns are nullable, so that a column upstream that loses its
NOT NULL, or is dropped, changes nothing here; the key is kept as the table property `lakehold.key`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from lakehold.definitions import Table
from lakehold.errors import TableStopped
from lakehold.iceberg.data_tables import TableState
from lakehold.ingest.envelope.change_columns import Changes
from lakehold.ingest.envelope.column_history import NUMBERS, RENAMED
from lakehold.ingest.envelope.unfilled_columns import UNFILLED, with_unfilled
from lakehold.model.high_water_marks import HighWaterMarks
from lakehold.model.lake_definitions import Entry
from lakehold.model.readers import TableProgress
from lakehold.model.summary_keys import OBJECT_ID, SOURCE_PROPERTY
from lakehold.object_names import full_name_text, object_text
from lakehold.spark_sql import alter_table, quoted, table_properties
from lakehold.table_layout import Layout
from lakehold.tables.column_names import require_names
from lakehold.tables.column_types import ColumnType, spark_text
from lakehold.tables.evolution import Evolution, altered, create_statement
from lakehold.tables.file_layout import LayoutUnfit, file_layout
from lakehold.tables.stored_key import KEY, key_text, stored_key
from lakehold.tables.unify import TypeConflict, same, unify


def creation(  # noqa: PLR0913 - a table, its columns, and how it is made
    entry: Entry[Table],
    name: str,
    key: Sequence[str],
    columns: Sequence[ColumnType],
    layout: Layout,
    *,
    replaces: bool = False,
    remembered: Mapping[str, Mapping[str, Any]] | None = None,
) -> Evolution:
    """Plan the statements that create the table, partitioned and locally ordered by its layout or its key.

    Args:
        entry: The definition and its identity.
        name: The table's full name in SQL, quoted.
        key: The key's columns.
        columns: All columns in order.
        layout: The layout of its files.
        replaces: Whether the table exists, and was never written.
        remembered: The history of the columns by property, see `history_properties`.

    Raises:
        TableStopped: The table cannot have the layout.
    """
    try:
        files = file_layout(layout, key, columns)
    except LayoutUnfit as fault:
        raise _unfit(entry.definition, fault) from None
    first, added = ([c for c in columns if (c.initial is not None) == is_added] for is_added in (False, True))
    properties = {
        SOURCE_PROPERTY: entry.definition.source,
        KEY: key_text(key),
        OBJECT_ID: entry.object_id,
        **{name: json.dumps(found) for name, found in (remembered or {}).items() if found},
    }
    create = "CREATE OR REPLACE TABLE" if replaces else "CREATE TABLE IF NOT EXISTS"
    return Evolution(
        (create_statement(name, columns, files, properties, create),),
        (*first, *added),
        is_new=True,
        added=tuple(added),
        finishing=files.statements(name),
    )


def is_other(state: TableState, key: Sequence[str], columns: Sequence[ColumnType]) -> bool:
    """Return whether a table has another key than messages, or a column of theirs with another type."""
    types = {f.name: f.field_type for f in state.schema.fields}
    return [c.name for c in stored_key(state)] != [*key] or any(
        c.name in types and not same(types[c.name], c.type) for c in columns
    )


def require_kept(table: Table, progress: TableProgress) -> None:
    """Refuse to create an Iceberg table again that earlier batches wrote: it would have the rows of the next ones only."""
    if progress.since_ms is None and not progress.high_water_marks.positions:
        return
    name = table.full_name
    raise TableStopped(
        f'the Iceberg table "{name}" does not exist any more',
        table=name,
        code="table-missing",
        detail="Another program dropped or renamed it. Created again, it would lack the rows of all earlier batches.",
        hint=f"Rename or restore it to {name} and ingest again; or DROP TABLE {name}, and create it again to load all rows.",
    )


def require_own(entry: Entry[Table], properties: Mapping[str, str]) -> None:
    """Refuse to write to an Iceberg table that was not created for this definition."""
    if properties.get(OBJECT_ID) == entry.object_id:
        return
    name = entry.definition.full_name
    raise TableStopped(
        f'an Iceberg table "{name}" already exists and is not this table\'s',
        table=name,
        code="table-foreign",
        detail="Another definition or another tool created it; merging into it would mix their rows.",
        hint=f"Rename the Iceberg table with another tool, and ingest again. Or undo the definition: DROP TABLE {name} leaves "
        "the Iceberg table as it is.",
    )


def evolution(  # noqa: PLR0913 - a table, its state, and what comes
    table: Table,
    name: str,
    schema: Schema,
    partitions: Collection[str],
    incoming: Sequence[ColumnType],
    key: Collection[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> Evolution:
    """Plan the changes after which a table with `schema`, and partition fields of some names, holds the `incoming` columns.

    `key` are the names of the key's columns; `renamed` has the names of columns by their earlier names.

    Raises:
        TableStopped: A column's type changed to one that Iceberg cannot promote to, or its name conflicts with another one.
    """
    names = {f.name for f in schema.fields}
    new_names = {old: new for old, new in (renamed or {}).items() if old in names and new not in names}
    statements = [alter_table(name, f"RENAME COLUMN {quoted(old)} TO {quoted(new)}") for old, new in new_names.items()]
    fields = {new_names.get(f.name, f.name): f for f in schema.fields}
    present = {column: f.field_type for column, f in fields.items()}
    initial = {column: f.initial_default for column, f in fields.items()}
    added, types = [], dict(present)
    for column in incoming:
        if column.name not in present:
            types[column.name], initial[column.name] = column.type, column.initial
            if column.initial is not None:
                added.append(column)
            else:
                statements.append(alter_table(name, f"ADD COLUMN {quoted(column.name)} {spark_text(column.type)}"))
            continue
        try:
            types[column.name] = unify(present[column.name], column.type, column.name)
        except TypeConflict as conflict:
            field = _field_in_conflict((column.name,), present[column.name], column.type)
            raise _impossible(table, conflict, field, column.name in key) from conflict
        statements += altered(name, quoted(column.name), present[column.name], types[column.name])
    columns = tuple(ColumnType(n, t, initial=initial[n]) for n, t in types.items())
    require_names(table, columns, {name for name in partitions if name not in present})
    return Evolution(tuple(statements), columns, added=tuple(added))


def history_properties(
    properties: Mapping[str, str], changes: Changes, before: HighWaterMarks, after: HighWaterMarks
) -> dict[str, Mapping[str, Any]]:
    """Return the history of a batch's columns as properties of the table, which has some `properties` now.

    The history is what later batches must know: earlier names of renamed columns, the numbers of columns in PostgreSQL, and new
    columns that older rows may lack values of. `before` and `after` are the table's high-water marks before and after the batch.
    """
    found: dict[str, Mapping[str, Any]] = {}
    if changes.unfilled:
        found[UNFILLED] = with_unfilled(
            properties, changes.unfilled, after if changes.unfilled & changes.partial else before
        )
    if changes.numbers:
        found |= {RENAMED: changes.renamed, NUMBERS: changes.numbers}
    return found


def remembering(
    name: str, properties: Mapping[str, str], remembered: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], list[str]]:
    """Write the statements that set `remembered` properties of a table: those to run before its change, and after it.

    The earlier name of a column is known before the column is renamed: otherwise a crash in between would lose it.
    """
    statements: tuple[list[str], list[str]] = ([], [])
    for key, found in remembered.items():
        text = json.dumps(found)
        if properties.get(key, "{}") != text:
            change = alter_table(name, f"SET TBLPROPERTIES {table_properties({key: text})}")
            statements[key == NUMBERS].append(change)
    return statements


def _field_in_conflict(path: tuple[str, ...], old: IcebergType, new: IcebergType) -> tuple[str, ...]:
    """Return the path of the innermost field around two types that `unify` refuses: Spark renames no elements and values."""
    match old, new:
        case StructType(), StructType():
            incoming = {f.name: f.field_type for f in new.fields}
            for field in (f for f in old.fields if f.name in incoming):
                try:
                    unify(field.field_type, incoming[field.name])
                except TypeConflict:
                    return _field_in_conflict((*path, field.name), field.field_type, incoming[field.name])
            return path
        case ListType(), ListType():
            within = (*path, "element")
            found = _field_in_conflict(within, old.element_type, new.element_type)
        case MapType(), MapType():
            within = (*path, "value")
            found = _field_in_conflict(within, old.value_type, new.value_type)
        case _:
            return path
    return path if found == within else found


def _impossible(table: Table, conflict: TypeConflict, field: Sequence[str], is_key: bool) -> TableStopped:
    column, old, new = conflict.column, spark_text(conflict.old), spark_text(conflict.new)
    return TableStopped(
        f'column "{column}" of table "{table.full_name}" changed from {old} to {new}',
        table=table.full_name,
        code="type-changed",
        detail="Iceberg cannot promote one to the other, so nothing of this batch was written to the table.",
        # A key whose column has another name would be none.
        hint=conflict.hint
        if is_key
        else f"Rename the stored column (ALTER TABLE {full_name_text(table.full_name)} RENAME COLUMN "
        f"{'.'.join(map(object_text, field))} TO …) and ingest again: the new type gets a column beside it, which has a row's "
        "value from its next change on. Or load the table again. Changing the type back upstream does not help: messages of "
        "the new type stay in the topic.",
    )


def _unfit(table: Table, fault: LayoutUnfit) -> TableStopped:
    return TableStopped(
        f'table "{table.full_name}" {fault}',
        table=table.full_name,
        code="layout-unfit",
        detail=fault.detail,
        hint=f"DROP TABLE {full_name_text(table.full_name)}, and create it with other options.",
    )
