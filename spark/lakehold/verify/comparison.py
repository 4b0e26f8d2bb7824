"""The outcome of comparing a table with its database. Data classes only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakehold.times import iso
from lakehold.verify.compared_columns import SkippedColumn


class Side(StrEnum):
    """The kind of a difference: only one side has the row, values differ, or a side has several rows of the key."""

    ONLY_IN_DATABASE = "only in the database"
    ONLY_IN_LAKE = "only in the lake"
    VALUES_DIFFER = "values differ"
    SEVERAL_ROWS = "several rows of one key"


@dataclass(frozen=True)
class Difference:
    """A key whose row is not the same on both sides.

    Attributes:
        key: The texts of the key's columns.
        side: The kind of the difference.
        columns: Names of the columns whose values differ.
        nulls: Names of the differing columns that are null in the lake.
    """

    key: tuple[str | None, ...]
    side: Side
    columns: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Describe the difference for people."""
        columns = f": {', '.join(self.columns)}" if self.columns else ""
        return f"key {', '.join(map(str, self.key))} {self.side.value}{columns}"


@dataclass(frozen=True)
class Comparison:
    """The outcome of comparing a table of the lake with its table in the database.

    Attributes:
        full_name: Full name of the lake's table.
        upstream: The table in the database.
        at_ms: The time at which the lake's table was read, epoch milliseconds.
        snapshot_id: The lake's snapshot; None: it had none.
        rows_in_database: How many rows the database had.
        rows_in_lake: How many rows the lake had.
        key: Names of the key's columns.
        columns: Names of the compared columns, the key's first.
        skipped: Columns that were not compared.
        differences: The first keys that differ.
        different: How many keys were found to differ.
        is_whole: Whether all keys were compared; otherwise more may differ.
        unresolved: How many keys kept changing while they were read, and so could not be compared.
        reasons: Why rows may differ, in sentences.
    """

    full_name: str
    upstream: str
    at_ms: int
    snapshot_id: int | None
    rows_in_database: int
    rows_in_lake: int
    key: tuple[str, ...]
    columns: tuple[str, ...]
    skipped: tuple[SkippedColumn, ...]
    differences: tuple[Difference, ...]
    different: int
    is_whole: bool
    unresolved: int
    reasons: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        """Return whether no key was found to differ."""
        return self.different == 0

    @property
    def summary(self) -> str:
        """Describe the outcome for people, in a line."""
        where = f"{self.upstream} at {iso(self.at_ms)} UTC"
        unresolved = f"; {self.unresolved:,} keys changed all the time and were not compared" if self.unresolved else ""
        if self.is_equal:
            return f"{self.full_name} equals {where}: {self.rows_in_lake:,} rows{unresolved}"
        least = "" if self.is_whole else "at least "
        counts = f"{self.rows_in_lake:,} rows in the lake, {self.rows_in_database:,} in the database"
        return f"{self.full_name} differs from {where}: {least}{self.different:,} keys; {counts}{unresolved}"
