"""Runs suites of Great Expectations on a table as it was at a time, and keeps what they found.

Great Expectations takes seconds to import: only `expectations` and `run` do, and they are imported when a suite runs.
"""

from __future__ import annotations

from lakehold.quality.checks import Checks
from lakehold.quality.judging import HoldJudge
from lakehold.quality.verdict import Outcome, Verdict

__all__ = ["Checks", "HoldJudge", "Outcome", "Verdict"]
