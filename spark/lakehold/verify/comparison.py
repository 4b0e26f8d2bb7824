"""The outcome of comparing a table with its database, or a view with its query. Data classes only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lakehold.times import iso
from lakehold.verify.compared_columns import SkippedColumn

KEYS_SHOWN = 1_000
"""Once so many keys are known to differ, a comparison ends."""

QUERY = "its query"
"""What stands for the table in the database if a materialized view is compared with its query."""


class Side(StrEnum):
    """The kind of a difference: only one side has the row, values differ, or a side has several rows of the key."""

    ONLY_IN_DATABASE = "only in the database"
    ONLY_IN_LAKE = "only in the lake"
    ONLY_IN_QUERY = "only in the query"
    ONLY_IN_VIEW = "only in the view"
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
    """The outcome of comparing a table of the lake with its table in the database, or a materialized view with its query.

    Attributes:
        full_name: Full name of the lake's table.
        upstream: The table in the database; `QUERY` of a view.
        at_ms: The time at which the lake's table was read, epoch milliseconds.
        snapshot_id: The lake's snapshot; None: it had none.
        rows_in_database: How many rows the database, or the query of a view, had.
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
        return f"{self.full_name} differs from {where}: {least}{self.different:,} keys; {self.counts}{unresolved}"

    @property
    def counts(self) -> str:
        """Return how many rows each side has, for people."""
        lake, other = ("view", "query") if self.upstream == QUERY else ("lake", "database")
        return f"{self.rows_in_lake:,} rows in the {lake}, {self.rows_in_database:,} in the {other}"


def in_order(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Sort differences by key; shorter texts come first, so that numbers are in their order."""
    return tuple(sorted(differences, key=lambda found: [(len(text or ""), text or "") for text in found.key]))
