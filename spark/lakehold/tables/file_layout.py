"""Writes the layout of a new table's files as SQL: partitions and order, from its definition or else from its key."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from lakehold.spark_sql import alter_iceberg_table, quoted
from lakehold.table_layout import IDENTITY, NEWEST_FORMAT, Layout, PartitionField, SortField, fields_text
from lakehold.tables.column_types import ColumnType, spark_text

_BUCKETED_TYPES = (IntegerType, LongType, StringType, DateType, DecimalType, TimestampType, TimestamptzType, BinaryType)
"""Key types that Iceberg's bucket transform takes (spec, "Partition Transforms")."""

_PLAIN: Mapping[str, type[Transform[Any, Any]]] = {
    IDENTITY: IdentityTransform,
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
}

_NAME_ENDS = {"truncate": "trunc"}
"""The ends of Iceberg's names for partition fields that differ from the name of the transform."""

_IN_OWN_FILES = {"write.delete.granularity": "file"}
"""Of format version 2: each file of position deletes is about one data file, so that a diff reads no others."""

_CLUSTERED = {"write.distribution-mode": "hash"}
"""One task writes the rows of a partition: otherwise each task would write a small file into each of many partitions."""


class LayoutUnfit(Exception):
    """A table cannot have the layout of its definition.

    Args:
        message: What it lacks, after the name of the table.
        detail: What was expected and what was found.
    """

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


@dataclass(frozen=True)
class FileLayout:
    """The layout of a table with known columns.

    Attributes:
        partitions: The values by which rows are partitioned.
        names: For each of them its name, if Iceberg's own is the name of a column.
        order: The columns by which the rows of a file are sorted.
        properties: Properties of the table.
        is_created: Whether CREATE TABLE names the partitions; otherwise they are added to the table.
    """

    partitions: tuple[PartitionField, ...]
    names: tuple[str | None, ...]
    order: tuple[SortField, ...]
    properties: Mapping[str, str]
    is_created: bool

    @property
    def clause(self) -> str:
        """Return the clause of CREATE TABLE."""
        return f" PARTITIONED BY ({fields_text(self.partitions)})" if self.partitions and self.is_created else ""

    def statements(self, name: str, added: int | None = None, *, is_sorted: bool = False) -> tuple[str, ...]:
        """Write the statements after CREATE TABLE.

        Args:
            name: The table's full name in SQL, quoted.
            added: How many partitions the table has; None: those that CREATE TABLE names.
            is_sorted: Whether the table has its order.
        """
        has = (len(self.partitions) if self.is_created else 0) if added is None else added
        missing = zip(self.partitions[has:], self.names[has:], strict=True)
        partitions = (
            alter_iceberg_table(name, "ADD PARTITION FIELD", field.sql() + (f" AS {quoted(named)}" if named else ""))
            for field, named in missing
        )
        # Merges skip files, and row groups, without the values of their order.
        sorted_ = alter_iceberg_table(name, "WRITE LOCALLY ORDERED BY", fields_text(self.order))
        return (*partitions, *((sorted_,) if self.order and not is_sorted else ()))


def file_layout(layout: Layout, key: Sequence[str], columns: Sequence[ColumnType]) -> FileLayout:
    """Return the layout of a table with `columns`: that of its definition, or buckets of the key and its order.

    Raises:
        LayoutUnfit: The table lacks a column of the layout, or its type has no such transform or order.
    """
    named = {column.name: column for column in columns}
    partitions = tuple(_of_table(field, named) for field in layout.partitioned_by)
    order = tuple(_sorted(field, named) for field in layout.sorted_by)
    # Iceberg orders by simple values only; a view may have a key of others.
    order = order or tuple(SortField(name) for name in key if named[name].type.is_primitive)
    bucketed = next((name for name in key if isinstance(named[name].type, _BUCKETED_TYPES)), None)
    if not partitions and bucketed is not None:
        partitions = (PartitionField("bucket", bucketed, layout.buckets),)
    names = tuple(_other_name(field, named) for field in partitions)
    return FileLayout(
        partitions,
        names,
        order,
        {
            **({} if layout.format_version == NEWEST_FORMAT else _IN_OWN_FILES),
            **(_CLUSTERED if layout.partitioned_by else {}),
            "format-version": str(layout.format_version),
        },
        # A column with an initial value is added to the table that CREATE TABLE made.
        is_created=not any(names) and all(named[field.column].initial is None for field in partitions),
    )


def _of_table(field: PartitionField, columns: Mapping[str, ColumnType]) -> PartitionField:
    column = _column(field.column, columns, "partitioned")
    if not _transform(field).can_transform(column.type):
        raise LayoutUnfit(
            f"cannot be partitioned by {field.sql(str)}",
            f'Column "{column.name}" is {spark_text(column.type)}, of which Iceberg has no {field.transform}.',
        )
    return PartitionField(field.transform, column.name, field.number)


def _sorted(field: SortField, columns: Mapping[str, ColumnType]) -> SortField:
    column = _column(field.column, columns, "sorted")
    if not column.type.is_primitive:
        raise LayoutUnfit(
            f"cannot be sorted by {column.name}", f"The column is {spark_text(column.type)}, which has no order."
        )
    return SortField(column.name, field.descending, field.nulls_first)


def _column(name: str, columns: Mapping[str, ColumnType], use: str) -> ColumnType:
    of_any_case = {column.name.lower(): column for column in columns.values()}
    found = columns.get(name) or of_any_case.get(name.lower())
    if found is None:
        raise LayoutUnfit(
            f'has no column "{name}", by which it is to be {use}', f"Its columns are {', '.join(columns)}."
        )
    return found


def _transform(field: PartitionField) -> Transform[Any, Any]:
    if field.transform == "bucket":
        return BucketTransform(field.number or 0)
    if field.transform == "truncate":
        return TruncateTransform(field.number or 0)
    return _PLAIN[field.transform]()


def _other_name(field: PartitionField, columns: Collection[str]) -> str | None:
    """Return a name for a partition field if Iceberg's own is the name of a column; None: it is not."""
    given = f"{field.column}_{_NAME_ENDS.get(field.transform, field.transform)}"
    if field.transform == IDENTITY or given not in columns:
        return None
    free = (f"{given}_{number}" for number in count(2))
    return next(name for name in free if name not in columns)
