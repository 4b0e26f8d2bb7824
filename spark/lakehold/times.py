"""Timestamps: epoch milliseconds (int64, `mz_timestamp`), the one measure of time in the lake."""

from __future__ import annotations

import time
from datetime import UTC, datetime

LAST_MS = (2**63 - 1) // 1000
"""The last millisecond that a timestamp of microseconds, such as Spark's, can hold; messages of Kafka may have later ones."""


def now_ms() -> int:
    """Return the clock in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def epoch_ms(at: datetime) -> int:
    """Convert a time to epoch milliseconds, rounded down."""
    return int(at.timestamp() * 1000)


def next_timestamp(last_ms: int | None) -> int:
    """Return the timestamp for the batch after `last_ms`: the clock, but later than the last; None: there was none."""
    now = now_ms()
    return now if last_ms is None else max(now, last_ms + 1)


def iso(timestamp_ms: int) -> str:
    """Format a timestamp as UTC text for people, to the millisecond.

    A timestamp beyond the years that Python knows stays a number.
    """
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return at.isoformat(sep=" ", timespec="milliseconds")[:-6]
