"""The columns of a captured table, as its database describes them.

`lakehold.upstream` asks the database. `column_history.py` needs the answer for columns that are new in messages, and a table that
is created before its first message has these columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lakehold.definitions import Table
from lakehold.tables.column_types import ColumnType


@dataclass(frozen=True)
class InitialValues:
    """The values that columns have in rows older than the column. No message has them: the database fills such rows silently.

    Args:
        known: The value that all of these rows have, by column, as a Python value; columns in neither attribute are null there.
        unknown: Columns whose values only the rows themselves show.
    """

    known: Mapping[str, object] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True)
class UpstreamColumns:
    """The columns of a table in the captured database.

    Args:
        columns: The columns that messages have, in order.
        key: Names of the primary key's columns.
        initial: The values of columns in rows older than the column.
        numbers: Numbers of the columns, which they keep when they are renamed; none in MySQL and MariaDB.
    """

    columns: tuple[ColumnType, ...] = ()
    key: tuple[str, ...] = ()
    initial: InitialValues = InitialValues()
    numbers: Mapping[str, int] = field(default_factory=dict)


UpstreamColumnsOf = Callable[[Table], UpstreamColumns]
"""A function that asks the database of a table; without columns: lakehold does not know the database."""


def no_columns(_: Table) -> UpstreamColumns:
    """Return no columns: lakehold does not know the database of the table."""
    return UpstreamColumns()
