"""Numbers and times as a person says them."""

from __future__ import annotations

from datetime import UTC, datetime

from lakehold.times import iso

_SECOND_MS = 1_000
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", _SECOND_MS), ("ms", 1))


def duration(ms: int) -> str:
    """`ms` milliseconds in its two largest units: `3 d 4 h`, `2 min`, `250 ms`."""
    for place, (name, size) in enumerate(_UNITS):
        if ms >= size:
            whole, rest = divmod(ms, size)
            below, below_size = _UNITS[min(place + 1, len(_UNITS) - 1)]
            # Nobody reads the milliseconds of minutes, nor those behind seconds.
            more = rest // below_size if place < len(_UNITS) - 2 else 0
            return f"{whole:,} {name}" + (f" {more} {below}" if more else "")
    return "0 s"


def ago(time_ms: int, now_ms: int) -> str:
    """How long before `now_ms` a time is, or how far ahead."""
    if time_ms > now_ms:
        return f"in {duration(time_ms - now_ms)}"
    return "now" if now_ms - time_ms < _SECOND_MS else f"{duration(now_ms - time_ms)} ago"


def count(number: int, one: str, many: str = "") -> str:
    """`1 table`, `1,200 tables`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def to_second(time_ms: int) -> str:
    """UTC text to the second."""
    return iso(time_ms).partition(".")[0]


def machine_time(time_ms: int) -> str | None:
    """What an attribute `datetime` takes; None beyond the years that Python knows."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None
