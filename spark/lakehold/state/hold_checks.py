"""Verdicts of checks, of holds and of tables, as rows of `mz_catalog.mz_hold_checks`.

A check runs a *suite* (expectations of Great Expectations about a table's rows), or compares a table with its database, or a
materialized view with its query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakehold.state.rows import Rows

DATABASE = "database"
"""What stands for the suite of a verdict that compares a table with its database."""

QUERY = "query"
"""What stands for the suite of a verdict that compares a view with its query."""


@dataclass(frozen=True)
class HoldCheck:
    """The result of a suite on one table, or of its comparison with its database.

    Attributes:
        hold_id: The hold that it was checked for; empty: none.
        table: Full name of the table.
        snapshot_id: The snapshot that was checked; None: the table had none.
        at_ms: The time it was read at, which is the hold's present or new time; epoch milliseconds.
        suite: The suite's file, or `generated`; `database` or `query`: the table was compared with that.
        success: Whether all expectations were met.
        statistics: Counts of expectations: evaluated, successful, failed.
        failures: One phrase for each expectation that was not met.
        html_path: The page that shows it.
        checked_at_ms: When the suite ran, epoch milliseconds.
    """

    hold_id: str
    table: str
    snapshot_id: int | None
    at_ms: int
    suite: str
    success: bool
    statistics: Mapping[str, int]
    failures: tuple[str, ...]
    html_path: str
    checked_at_ms: int

    @property
    def is_comparison(self) -> bool:
        """Return whether the table was compared with its database or query, and no suite ran."""
        return self.suite in (DATABASE, QUERY)


HOLD_CHECKS = Rows("mz_catalog.mz_hold_checks", HoldCheck, {"table": "table_name", "at_ms": "at"})
