"""What the holds DAG does with holds: moves those that are too far behind, and those that it is asked to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING

from lakehold.errors import LakeholdError
from lakehold.orchestration.lakes import text_of
from lakehold.times import iso

if TYPE_CHECKING:
    from lakehold.lake import Lake
    from lakehold.state.holds import Hold

log = logging.getLogger(__name__)

_CALLERS = 32
"""Advances that wait for one commit together."""


def enforce_lag(lake: Lake) -> list[str]:
    """Move holds to where their MAX LAG ends; the names of those that were behind."""
    moved = lake.holds.enforce_lag()
    for hold in moved:
        log.warning("hold %s was further behind than its MAX LAG and keeps history from %s UTC on", *_place(hold))
    if not moved:
        log.info("no hold is further behind than its MAX LAG")
    return [hold.name for hold in moved]


def advance(lake: Lake, holds: Sequence[str], to_ms: int | None) -> dict[str, str]:
    """Advance holds, many in one commit; what kept one from it, by name."""

    def advanced(name: str) -> str | None:
        try:
            log.info("hold %s keeps history from %s UTC on", *_place(lake.holds.advance(name, to_ms)))
        except LakeholdError as error:
            log.error("hold %s: %s", name, text_of(error))
            return text_of(error)
        return None

    with ThreadPoolExecutor(max_workers=_CALLERS) as threads:
        outcomes = zip(holds, threads.map(advanced, holds), strict=True)
        return {name: error for name, error in outcomes if error is not None}


def milliseconds(moment: str | None) -> int | None:
    """Epoch milliseconds of a moment in ISO 8601, as the trigger form gives it."""
    return None if moment is None else int(datetime.fromisoformat(moment).timestamp() * 1000)


def _place(hold: Hold) -> tuple[str, str]:
    return hold.name, iso(hold.at_ms) if hold.at_ms is not None else "its tables' first rows"
