"""What a suite found, in plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """What one expectation found.

    Attributes:
        expectation: Its type, such as `expect_column_values_to_not_be_null`.
        column: The column or columns it is about; empty for the table as a whole.
        success: Whether the table is as expected.
        expected: What was expected, for people.
        found: What there is instead, or what was seen, for people.
        examples: Some values or rows that are not as expected.
        keys: Of some of the rows that they are in, where the table has a key.
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
    """What a suite found on one snapshot of a table.

    Attributes:
        full_name: The table.
        snapshot_id: The snapshot; None: the table had none, and no rows.
        at_ms: The time it was read at, epoch milliseconds.
        suite: The suite's file, or `generated`.
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
        """Whether everything is as expected."""
        return not self.failed

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """What is not as expected."""
        return tuple(outcome for outcome in self.outcomes if not outcome.success)

    @property
    def statistics(self) -> Mapping[str, int]:
        """How many expectations there are, and how they went."""
        failed = len(self.failed)
        return {"evaluated": len(self.outcomes), "successful": len(self.outcomes) - failed, "failed": failed}
