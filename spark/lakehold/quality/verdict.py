"""The results of a suite, as plain values. A comparison of a table with its database has the same form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """The result of one expectation.

    Attributes:
        expectation: Its type, such as `expect_column_values_to_not_be_null`.
        column: The column or columns it is about; empty for the table as a whole.
        success: Whether the table meets it.
        expected: The expectation, described for people.
        found: The finding, described for people.
        examples: Some values or rows that violate it.
        keys: Keys of some violating rows, if the table has a key.
    """

    expectation: str
    column: str
    success: bool
    expected: str
    found: str
    examples: tuple[Any, ...] = ()
    keys: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The result of a suite on one snapshot of a table.

    Attributes:
        full_name: The table.
        snapshot_id: The snapshot; None: the table had none, and no rows.
        at_ms: The time it was read at, epoch milliseconds.
        suite: The suite's file, `generated`, or `database` for a comparison with the table's database.
        outcomes: In the suite's order.
        html_path: The page that shows it: a path on this machine, or a URI.
        checked_at_ms: When the suite ran, epoch milliseconds.
    """

    full_name: str
    snapshot_id: int | None
    at_ms: int
    suite: str
    outcomes: tuple[Outcome, ...]
    html_path: str
    checked_at_ms: int

    @property
    def success(self) -> bool:
        """Return whether the table meets all expectations."""
        return not self.failed

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """Return the outcomes of expectations that are not met."""
        return tuple(outcome for outcome in self.outcomes if not outcome.success)

    @property
    def statistics(self) -> Mapping[str, int]:
        """Count the expectations: evaluated, successful and failed."""
        failed = len(self.failed)
        return {"evaluated": len(self.outcomes), "successful": len(self.outcomes) - failed, "failed": failed}
