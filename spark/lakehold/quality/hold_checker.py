"""The CHECK of a hold: the suites of its tables run at the hold's time, and the verdicts are kept with the hold.

A hold keeps tables readable from a time on. `HoldCommands` calls this when a hold with a CHECK is created or advanced.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakehold.errors import DataRefused
from lakehold.quality.table_checks import Checks
from lakehold.quality.verdict import Verdict
from lakehold.state.holds import Check, Hold


@dataclass(frozen=True)
class HoldChecker:
    """A check of the tables of holds.

    Args:
        checks: Checks the tables of the lake.
    """

    checks: Checks

    def __call__(self, hold: Hold) -> None:
        """Check all tables of `hold` at its new time, and keep the verdicts.

        Raises:
            DataRefused: A table fails its suite, and the hold requires it to pass.
        """
        verdicts = [self.checks.check_at(table.full_name, hold=hold) for table in hold.tables]
        failed = [verdict for verdict in verdicts if not verdict.success]
        if failed and hold.check is Check.REQUIRE:
            raise DataRefused(
                f'hold "{hold.name}" cannot be at {hold.at_ms}: its tables do not meet their expectations then',
                detail=" ".join(_sentence(verdict) for verdict in failed),
                hint=f"Correct the data or the suite and try again; see {failed[0].html_path}.",
            )


def _sentence(verdict: Verdict) -> str:
    first, count = verdict.failed[0], len(verdict.failed)
    column = f" ({first.column})" if first.column else ""
    return (
        f"{verdict.full_name}: {count} of {len(verdict.outcomes)} expectations are not met, the first is "
        f"{first.expectation}{column}: expected {first.expected}, found {first.found}."
    )
