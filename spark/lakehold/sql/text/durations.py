"""Durations in statements: `'3h'`, `'1 day 12:00'`, `INTERVAL '3' HOUR`, `INTERVAL 1 DAY 12 HOURS`, `'3h'::INTERVAL`."""

from __future__ import annotations

import re
from fractions import Fraction

from sqlglot import TokenType

from lakehold.sql.text.cursor import Cursor

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
"""The units that `duration_text` writes, longest first."""

_UNITS = {
    "ms": ("ms", "millisecond", "milliseconds"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "d": ("d", "day", "days"),
    "w": ("w", "week", "weeks"),
}
_WEEK_MS = 7 * _UNITS_MS["d"]
_MS = {word: _UNITS_MS.get(unit, _WEEK_MS) for unit, words in _UNITS.items() for word in words}

_PART = re.compile(r"(?P<count>\d{1,18}(?:\.\d{1,18})?)\s*(?P<unit>[a-z]+)", re.ASCII)
_CLOCK = re.compile(r"(?P<h>\d{1,18}):(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d(?:\.\d{1,18})?))?", re.ASCII)
"""Hours, minutes and seconds as PostgreSQL writes an interval."""

_COUNT = re.compile(r"\d{1,18}(?:\.\d{1,18})?", re.ASCII)
_LAST_MS = 2**63 - 1
_EXAMPLE = "such as '3h', '20s' or '1 day'"


def parse_duration(cursor: Cursor) -> int:
    """Parse a duration above zero: text, `INTERVAL text`, `INTERVAL number unit …` or `text::INTERVAL`.

    Months and years are refused, because their length depends on when they begin.

    Returns:
        The duration in milliseconds.

    Raises:
        StatementError: The text is no such duration.
    """
    first = cursor.peek()
    if cursor.accept("INTERVAL"):
        duration_ms = _interval_ms(cursor)
    else:
        duration_ms = duration_of_text_ms(cursor.text("a duration"))
        if cursor.accept_symbol("::"):
            cursor.expect("INTERVAL")
    if not duration_ms or duration_ms > _LAST_MS:
        written = cursor.sql[first.start : cursor.last.end + 1]
        raise cursor.error_at(first, f"expected a duration {_EXAMPLE}, found {written}", last=cursor.last)
    return duration_ms


def duration_of_text_ms(text: str) -> int | None:
    """Convert `3h`, `1 day 12 hours` or `03:00:00` to milliseconds; None if it is no duration of whole milliseconds."""
    rest, total = text.strip().lower(), Fraction(0)
    while rest:
        part = _CLOCK.match(rest) or _PART.match(rest)
        if part is None:
            return None
        counts = {part["unit"]: part["count"]} if part.re is _PART else part.groupdict("0")
        if not counts.keys() <= _MS.keys():
            return None
        total += sum(Fraction(count) * _MS[unit] for unit, count in counts.items())
        rest = rest[part.end() :].lstrip(" ,")
    return int(total) if total.denominator == 1 and text.strip() else None


def duration_text(duration_ms: int) -> str:
    """Write a duration as `parse_duration` reads it, without quotes: `1d 12h`."""
    parts = []
    for unit, unit_ms in _UNITS_MS.items():
        count, duration_ms = divmod(duration_ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0s"


def _interval_ms(cursor: Cursor) -> int | None:
    """Parse the text after INTERVAL: `'3h'`, `'3' HOUR` or `1 DAY 12 HOURS`."""
    if not _at_count(cursor):
        raise cursor.error("a duration in single quotes", "a number")
    if not _COUNT.fullmatch(cursor.peek().text.strip()):
        return duration_of_text_ms(cursor.advance().text)
    counted = ""
    while _at_count(cursor):
        counted += cursor.advance().text
        if cursor.word().lower() not in _MS:
            raise cursor.error("DAY", "HOUR", "MINUTE", "SECOND")
        counted += cursor.source_text(cursor.advance())
    return duration_of_text_ms(counted)


def _at_count(cursor: Cursor) -> bool:
    return cursor.is_text() or cursor.peek().token_type is TokenType.NUMBER
