"""Runs suites of Great Expectations on a table as of a time, and keeps the verdicts.

Great Expectations takes seconds to import: only `expectations` and functions of `suite_run` import it, when a suite runs.
"""

from __future__ import annotations

from lakehold.quality.hold_checker import HoldChecker
from lakehold.quality.table_checks import Checks
from lakehold.quality.verdict import Outcome, Verdict

__all__ = ["Checks", "HoldChecker", "Outcome", "Verdict"]
