"""Shortens a comparison with a database or a query to a verdict, as suites of expectations have them. Pure.

lakehold keeps verdicts in the lake and shows them on pages. A suite can contain such a comparison as an expectation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lakehold.errors import LakeholdError
from lakehold.quality.describe import expected_text
from lakehold.quality.suites import EQUALS_DATABASE
from lakehold.quality.verdict import Outcome, Verdict
from lakehold.state import hold_checks
from lakehold.times import now_ms
from lakehold.verify.comparison import QUERY, Comparison

_KEYS_NAMED = 10
_CHARACTERS_OF_KEY = 200


def verdict_of(found: Comparison) -> Verdict:
    """Return the verdict of a comparison that has just been made."""
    outcome = Outcome(EQUALS_DATABASE, "", found.is_equal, f"the rows of {found.upstream}", _found(found))
    suite = hold_checks.QUERY if found.upstream == QUERY else hold_checks.DATABASE
    return Verdict(found.full_name, found.snapshot_id, found.at_ms, suite, (outcome,), "", now_ms())


def outcome_of(compare: Callable[[], Comparison], arguments: Mapping[str, Any]) -> Outcome:
    """Compare a table, and return the outcome for a suite: if the table cannot be compared, it does not meet the expectation.

    Args:
        compare: Compares the table; may raise a `LakeholdError`.
        arguments: The arguments of the expectation in the suite.
    """
    try:
        (outcome,) = verdict_of(compare()).outcomes
    except LakeholdError as error:
        found = " ".join(part for part in (f"not compared: {error.message}.", error.detail) if part)
        return Outcome(EQUALS_DATABASE, "", False, expected_text(EQUALS_DATABASE, arguments), found)
    return outcome


def _found(found: Comparison) -> str:
    unresolved = f"; {found.unresolved:,} keys changed all the time and were not compared" if found.unresolved else ""
    if found.is_equal:
        return f"{found.rows_in_lake:,} equal rows{unresolved}"
    keys = [_shortened(each.text) for each in found.differences[:_KEYS_NAMED]]
    more = ["…"] if found.different > len(keys) or not found.is_whole else []
    least = "" if found.is_whole else "at least "
    differing = "1 key that differs" if found.different == 1 else f"{found.different:,} keys that differ"
    return " ".join(
        [
            f"{least}{differing}: {'; '.join([*keys, *more])}. {found.counts}{unresolved}.",
            *found.reasons,
        ]
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _CHARACTERS_OF_KEY else f"{text[:_CHARACTERS_OF_KEY]}…"
