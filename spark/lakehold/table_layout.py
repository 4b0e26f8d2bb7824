"""The layout of a table's files as a statement declares it: partitions, order and the version of Iceberg's format. Pure.

Definitions keep partitions and order as text in Spark's SQL, with every name in backquotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lakehold.spark_sql import quoted

FORMAT_VERSION: Final = "format_version"
PARTITIONED_BY: Final = "partitioned_by"
SORTED_BY: Final = "sorted_by"

NEWEST_FORMAT: Final = 3
"""Iceberg's format of a table whose definition names none."""

TIMES: Final = ("year", "month", "day", "hour")
"""Transforms of dates and times; one of them per column."""

NUMBERED: Final = ("bucket", "truncate")
"""Transforms that take a number before the column."""

IDENTITY: Final = "identity"

_NAME = r"`((?:[^`]|``)*)`"
_PARTITION = re.compile(rf"(?:(\w+)\((?:(\d+), )?)?{_NAME}\)?")
_SORTED = re.compile(rf"{_NAME}( DESC)?(?: NULLS (FIRST|LAST))?")


@dataclass(frozen=True)
class PartitionField:
    """A value by which rows are partitioned: a column's own (`identity`), or one of Iceberg's transforms of it.

    Attributes:
        transform: The transform.
        column: The column.
        number: Number of buckets, or width of a truncation; None for the other transforms.
    """

    transform: str
    column: str
    number: int | None = None

    @property
    def kind(self) -> str:
        """Return what a column may have only one of."""
        return "time" if self.transform in TIMES else self.transform

    def sql(self, name: Callable[[str], str] = quoted) -> str:
        """Write it as SQL; `name` writes the column's name."""
        if self.transform == IDENTITY:
            return name(self.column)
        number = f"{self.number}, " if self.number is not None else ""
        return f"{self.transform}({number}{name(self.column)})"


@dataclass(frozen=True)
class SortField:
    """A column by which the rows of a file are sorted."""

    column: str
    descending: bool = False
    nulls_first: bool = True

    def sql(self, name: Callable[[str], str] = quoted) -> str:
        """Write it as SQL; `name` writes the column's name."""
        nulls = "FIRST" if self.nulls_first else "LAST"
        is_usual = self.nulls_first != self.descending
        return name(self.column) + " DESC" * self.descending + ("" if is_usual else f" NULLS {nulls}")


@dataclass(frozen=True)
class Layout:
    """The layout of a table's files.

    Attributes:
        buckets: Number of buckets of the key, if `partitioned_by` is empty.
        partitioned_by: The values by which rows are partitioned.
        sorted_by: The columns by which the rows of a file are sorted; empty: by the key.
        format_version: The version of Iceberg's format.
    """

    buckets: int
    partitioned_by: tuple[PartitionField, ...] = ()
    sorted_by: tuple[SortField, ...] = ()
    format_version: int = NEWEST_FORMAT


def layout_of(options: Mapping[str, object], buckets: int) -> Layout:
    """Return the layout that options declare; `buckets` counts where they declare neither partitions nor buckets."""
    return Layout(
        int(str(options.get("buckets", buckets))),
        partition_fields(str(options.get(PARTITIONED_BY, ""))),
        sort_fields(str(options.get(SORTED_BY, ""))),
        int(str(options.get(FORMAT_VERSION, NEWEST_FORMAT))),
    )


def fields_text(fields: Iterable[PartitionField | SortField], name: Callable[[str], str] = quoted) -> str:
    """Write fields as SQL; the text that definitions keep unless `name` writes names differently."""
    return ", ".join(field.sql(name) for field in fields)


def partition_fields(text: str) -> tuple[PartitionField, ...]:
    """Read the text of partitions that a definition keeps."""
    return tuple(
        PartitionField(found[1] or IDENTITY, found[3].replace("``", "`"), int(found[2]) if found[2] else None)
        for found in _PARTITION.finditer(text)
    )


def sort_fields(text: str) -> tuple[SortField, ...]:
    """Read the text of an order that a definition keeps."""
    return tuple(
        SortField(found[1].replace("``", "`"), bool(found[2]), found[3] == "FIRST" if found[3] else not found[2])
        for found in _SORTED.finditer(text)
    )
