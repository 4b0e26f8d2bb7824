"""Refuse a table that a statement declares because of its columns: their names, the key, or a key that is missing. Pure.

lakehold checks names as the connector writes them, because the lake's table has them so. Columns of a column list or contract
that leave the database later are reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyiceberg.types import StringType

from lakehold.definitions import ConnectionType
from lakehold.errors import UpstreamError
from lakehold.file_names import file_name_of
from lakehold.nearest import close_names
from lakehold.object_names import full_name_text
from lakehold.tables.column_names import folded, name_fault
from lakehold.tables.column_types import ColumnType
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.found import Found
from lakehold.upstream.types.field_names import colliding_columns, field_name
from lakehold.upstream.types.identifier_quoting import identifier_text, table_text
from lakehold.upstream.wanted.wanted import CapturedTable, Wanted


def refuse_columns(table: CapturedTable, columns: Sequence[FoundColumn], wanted: Wanted) -> None:
    """Refuse a table that cannot be captured with these columns; none are known of a table that does not exist."""
    if columns:
        _refuse_collision(table, columns, wanted)
        _refuse_names(table, columns, wanted)
        _refuse_missing(table, columns, wanted)
        _refuse_keyless(table, columns, wanted)


def _refuse_collision(table: CapturedTable, columns: Sequence[FoundColumn], wanted: Wanted) -> None:
    pairs = colliding_columns(columns, wanted.config)
    if pairs:
        (one, other), *_ = pairs
        written = field_name(one.name, wanted.config)
        raise UpstreamError(
            f'columns "{one.name}" and "{other.name}" of table "{table.upstream}" have one name in Avro',
            code="column-collision",
            detail=f"Debezium writes both as {written}, as Avro allows, and its connector then fails for all of its tables.",
            hint=f"{_renaming(table, other.name, wanted)}, or create the source with FORMAT JSON.",
        )


def _refuse_names(table: CapturedTable, columns: Sequence[FoundColumn], wanted: Wanted) -> None:
    """Refuse names that a table of the lake cannot have, unless a column list omits the column."""
    written = {field_name(column.name, wanted.config): column.name for column in columns}
    listed = {folded(name) for name in (*table.columns, *table.key)}
    names = [name for name in written if not table.columns or folded(name) in listed]
    # Checked column by column, so that the last one of a prefix is at fault.
    for end in range(1, len(names) + 1):
        fault = name_fault([ColumnType(name, StringType()) for name in names[:end]], f'table "{table.upstream}"')
        if fault is None:
            continue
        name = written[names[end - 1]]
        called = f' "{name}" is called {names[end - 1]} in Avro.' if name != names[end - 1] else ""
        listing = (
            "Name the table's columns without it in the statement: (column TYPE, …). Or "
            if fault.can_be_left_out
            else ""
        )
        renaming = _renaming(table, name, wanted)
        raise UpstreamError(
            fault.message, code=fault.code, detail=f"{fault.detail}{called}", hint=f"{listing}{renaming}."
        )


def _refuse_missing(table: CapturedTable, columns: Sequence[FoundColumn], wanted: Wanted) -> None:
    """Refuse a key, and a column list or contract, with columns that the database does not have."""
    written = {field_name(column.name, wanted.config): column.name for column in columns}
    of_key = next((name for name in table.key if name not in written), None)
    missing = of_key or next(iter(_missing_of_list(table, columns, wanted)), None)
    if missing is None:
        return
    known = {name.lower(): name for name in written} | {name.lower(): as_ for as_, name in written.items()}
    close = close_names(missing.lower(), known)
    where = _list_of(table) if table.columns else "KEY"
    raise UpstreamError(
        f'table "{table.upstream}" has no column "{missing}", which is in {where} of table "{table.full_name}"',
        code="column-missing",
        detail=f"Its columns: {', '.join(written)}.",
        hint=f"Did you mean {known[close[0]]}?"
        if close
        else "Name columns as the database has them, in upper or lower case as well.",
    )


def missing_hints(wanted: Wanted, found: Found) -> Iterator[str]:
    """Yield a sentence for each column of a column list or contract that the database does not have any more."""
    for table in wanted.tables:
        columns = found.columns.get(table.upstream, ())
        for name in _missing_of_list(table, columns, wanted) if columns else ():
            yield (
                f'column "{name}" is in {_list_of(table)} of {table.full_name}, and {table.upstream} does not have it any '
                "more: it is null in rows that change from then on. If it was renamed, give it its name back, or DROP TABLE "
                f"{full_name_text(table.full_name)} and create it with the new name"
            )


def _list_of(table: CapturedTable) -> str:
    """Name what gives a table its columns; definitions do not say which of the two it was."""
    return f'the column list, or the contract "{file_name_of(table.full_name)}.json",'


def _missing_of_list(table: CapturedTable, columns: Sequence[FoundColumn], wanted: Wanted) -> list[str]:
    """Return the columns of a column list or contract that the database does not have, in upper or lower case."""
    known = {folded(field_name(column.name, wanted.config)) for column in columns}
    return [name for name in table.columns if folded(name) not in known]


def _refuse_keyless(table: CapturedTable, columns: Sequence[FoundColumn], wanted: Wanted) -> None:
    if table.key or table.needs_before or any(column.is_key for column in columns):
        return
    upstream = table_text(table.upstream, wanted.capture.database)
    deferrable = (
        "A DEFERRABLE key does not count: until a transaction commits, several rows may have one of its values. "
    )
    raise UpstreamError(
        f'table "{table.upstream}" has no primary key',
        code="key-missing",
        detail=f'Table "{table.full_name}" keeps the newest state of each row, so its rows need a key. '
        f"{deferrable if wanted.capture.database is ConnectionType.POSTGRES else ''}"
        f"Its columns: {', '.join(field_name(column.name, wanted.config) for column in columns)}.",
        hint=f"Name columns that identify its rows in the statement: KEY (column, …). Or give it a key: ALTER TABLE {upstream} "
        "ADD PRIMARY KEY (column, …). Or use ENVELOPE DEBEZIUM, which needs no key.",
    )


def _renaming(table: CapturedTable, column: str, wanted: Wanted) -> str:
    database = wanted.capture.database
    return f"ALTER TABLE {table_text(table.upstream, database)} RENAME COLUMN {identifier_text(column, database)} TO …"
