"""Work of the holds DAG: it moves holds that exceed their MAX LAG, and holds that a person asks it to advance.

A hold keeps tables readable from a time on; MAX LAG limits how far that time may be behind the tables.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING

from lakehold.errors import LakeholdError
from lakehold.orchestration.failures import Found
from lakehold.orchestration.lakes import text_of
from lakehold.times import epoch_ms, iso

if TYPE_CHECKING:
    from lakehold.lake import Lake
    from lakehold.state.holds import Hold

log = logging.getLogger(__name__)

_CALLERS = 32
"""Number of advances that run at once: those that come during a commit share the next one."""


def enforce_lag(lake: Lake) -> list[str]:
    """Move holds that exceed their MAX LAG to exactly that lag, and return their names."""
    moved = lake.holds.enforce_lag()
    for hold in moved:
        log.warning("hold %s exceeded its MAX LAG and keeps history from %s UTC on", *_name_and_time(hold))
    if not moved:
        log.info("no hold exceeds its MAX LAG")
    return [hold.name for hold in moved]


def advance(lake: Lake, holds: Sequence[str], to_ms: int | None) -> Found:
    """Advance holds, many in one commit, and return the failures by name.

    Args:
        lake: The lake.
        holds: Their names.
        to_ms: The time from which they then keep history; None: the oldest time that retention keeps readable anyway.
    """

    def advanced(name: str) -> LakeholdError | None:
        try:
            log.info("hold %s keeps history from %s UTC on", *_name_and_time(lake.holds.advance(name, to_ms)))
        except LakeholdError as error:
            log.error("hold %s: %s", name, text_of(error))
            return error
        return None

    with ThreadPoolExecutor(max_workers=_CALLERS) as threads:
        outcomes = zip(holds, threads.map(advanced, holds), strict=True)
        return {name: error for name, error in outcomes if error is not None}


def milliseconds(iso_time: str | None) -> int | None:
    """Convert a time in ISO 8601, as the trigger form gives it, to epoch milliseconds."""
    return None if iso_time is None else epoch_ms(datetime.fromisoformat(iso_time))


def _name_and_time(hold: Hold) -> tuple[str, str]:
    return hold.name, iso(hold.at_ms) if hold.at_ms is not None else "its tables' first rows"
