"""Columns of a view's table: those of its query's result, which change with the tables that the query reads.

A result that only got more columns, or wider ones, is followed. Anything else stops the view: its rows would no longer equal the
query's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa

from lakehold.errors import DefinitionError
from lakehold.object_names import full_name_text
from lakehold.spark_sql import alter_table, quoted
from lakehold.subscribe.spark_types import spark_type
from lakehold.tables.column_types import ColumnType, spark_text
from lakehold.tables.spark_types import from_spark
from lakehold.tables.unify import TypeConflict, same, unify


def column_types(full_name: str, columns: pa.Schema) -> tuple[ColumnType, ...]:
    """Return the columns of the table of the view `full_name`, whose query has `columns`.

    Raises:
        DefinitionError: A table cannot have them.
    """
    try:
        return types_of(columns)
    except TypeError as error:
        raise DefinitionError(
            f'materialized view "{full_name}" cannot have the columns of its query',
            code="view-columns",
            detail=f"{error}.",
            hint="Name columns with AS, and CAST them to types that a table can have.",
        ) from None


def types_of(columns: pa.Schema) -> tuple[ColumnType, ...]:
    """Return the columns of a table for `columns`.

    Raises:
        TypeError: A table cannot have them; the text is a sentence without its full stop.
    """
    names = [name.lower() for name in columns.names]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise TypeError(f"More than one column is called {', '.join(repeated)}")
    return tuple(ColumnType(field.name, from_spark(spark_type(field.type))) for field in columns)


def followed(
    full_name: str, name: str, stored: Sequence[ColumnType], wanted: Sequence[ColumnType], filled: Collection[str]
) -> tuple[str, ...]:
    """Plan the statements that give the table of a view the columns that its query has now.

    Args:
        full_name: The table's full name.
        name: The same in SQL, quoted.
        stored: The table's columns.
        wanted: The columns of the query.
        filled: Names of columns that have a value in rows which are older than the column: a diff does not show these values.

    Raises:
        DefinitionError: The query lacks a column of the table, or has another type that the table cannot follow.
    """
    now = {column.name: column for column in wanted}
    statements = []
    try:
        if missing := [column.name for column in stored if column.name not in now]:
            raise _NotFollowed(f"the query no longer has {', '.join(missing)}")
        for column in stored:
            new = now.pop(column.name).type
            if not same(column.type, new):
                if not column.type.is_primitive or not same(unify(column.type, new, column.name), new):
                    raise _NotFollowed(f"{column.name} is {spark_text(new)} now")
                statements.append(alter_table(name, f"ALTER COLUMN {quoted(column.name)} TYPE {spark_text(new)}"))
        for column in now.values():
            if column.name in filled:
                raise _NotFollowed(f"{column.name} was added with a value for older rows")
            statements.append(alter_table(name, f"ADD COLUMN {quoted(column.name)} {spark_text(column.type)}"))
    except (_NotFollowed, TypeConflict) as change:
        raise other_columns(
            full_name, f"The table has {_listed(stored)}; the query has {_listed(wanted)}: {change}."
        ) from None
    return tuple(statements)


def other_columns(full_name: str, detail: str) -> DefinitionError:
    """Return the error that stops a view whose tables have other columns."""
    return DefinitionError(
        f'the query of materialized view "{full_name}" has other columns than its table',
        code="view-columns",
        detail=detail,
        hint=f"SHOW CREATE MATERIALIZED VIEW {full_name_text(full_name)}, then DROP it and create it again with the columns that "
        "its tables have now. Or undo the change, if the table is another program's.",
    )


class _NotFollowed(Exception):
    """A change that the table of a view cannot follow."""


def _listed(columns: Iterable[ColumnType]) -> str:
    return ", ".join(f"{column.name} {column.spark_type}" for column in columns)
