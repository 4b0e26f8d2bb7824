"""The columns of a captured table, as its database describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lakehold.definitions import Table
from lakehold.ingest.decode.types import ColumnType


@dataclass(frozen=True)
class InitialValues:
    """The values that columns have in rows older than the column. No message has them: the database fills such rows silently.

    Args:
        known: One value for all of these rows, by column, in Python's form of Iceberg's type; null where a column is missing.
        unknown: Columns of which only the rows themselves show the values.
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


def no_columns(_: Table) -> UpstreamColumns:
    """Return nothing, for a table that no database describes."""
    return UpstreamColumns()
