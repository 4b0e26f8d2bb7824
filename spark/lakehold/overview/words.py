"""Numbers and times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

from lakehold.times import iso

_SECOND_MS = 1_000
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", _SECOND_MS), ("ms", 1))


def duration(ms: int) -> str:
    """Format `ms` milliseconds in their two largest units: `3 d 4 h`, `2 min`, `250 ms`."""
    for place, (name, size) in enumerate(_UNITS):
        if ms >= size:
            whole, rest = divmod(ms, size)
            below, below_size = _UNITS[min(place + 1, len(_UNITS) - 1)]
            # Milliseconds of seconds and minutes are noise.
            more = rest // below_size if place < len(_UNITS) - 2 else 0
            return f"{whole:,} {name}" + (f" {more} {below}" if more else "")
    return "0 s"


def ago(time_ms: int, now_ms: int) -> str:
    """Format how long before `now_ms` a time is, or how long after."""
    if time_ms > now_ms:
        return f"in {duration(time_ms - now_ms)}"
    return "now" if now_ms - time_ms < _SECOND_MS else f"{duration(now_ms - time_ms)} ago"


def count(number: int, one: str, many: str = "") -> str:
    """Format a count with its noun: `1 table`, `1,200 tables`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def to_second(time_ms: int) -> str:
    """Format a timestamp as UTC text to the second."""
    return iso(time_ms).partition(".")[0]


def machine_time(time_ms: int) -> str | None:
    """Format a timestamp for the attribute `datetime`; None beyond the years that Python knows."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None
