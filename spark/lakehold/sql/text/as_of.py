"""Times in statements: timestamps, and what follows AS OF."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from sqlglot import TokenType

from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.dialect import split
from lakehold.timeline.as_of import EARLIEST, LATEST, AsOf

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 2**63 - 1
_ISO_8601 = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)"
    r"([T ](?P<minute>\d\d:\d\d)((?P<second>:\d\d)(\.(?P<fraction>\d{1,9}))?)? ?(?P<offset>Z|[+-]\d\d(:?\d\d)?)?)?",
    re.ASCII,
)
_TIMESTAMP_DIGITS = 3


def parse_as_of(cursor: Cursor) -> AsOf:
    """Parse what follows AS OF: `[AT LEAST] t`, EARLIEST or LATEST.

    Raises:
        StatementError: Something else follows.
    """
    if cursor.accept("EARLIEST"):
        return EARLIEST
    if cursor.accept("LATEST"):
        return LATEST
    if cursor.word() and not cursor.at_words("TIMESTAMP") and not cursor.at_words("AT"):
        raise cursor.error("epoch milliseconds", "a timestamp in single quotes", "AT LEAST", "EARLIEST", "LATEST")
    if cursor.at_words("AT"):
        cursor.expect("AT", "LEAST", hint="write AT LEAST")
        return AsOf(parse_timestamp(cursor), at_least=True)
    return AsOf(parse_timestamp(cursor))


def parse_timestamp(cursor: Cursor) -> int:
    """Parse a timestamp and return epoch milliseconds.

    It is a number of epoch milliseconds, or ISO 8601 in single quotes, after TIMESTAMP or not, in UTC unless it has an offset.

    Raises:
        StatementError: There is no timestamp at the cursor, or it is finer than a millisecond.
    """
    token = cursor.peek()
    if token.token_type is TokenType.NUMBER and cursor.source_text(token).isdecimal():
        cursor.advance()
        if int(token.text) > _LAST_MS:
            raise cursor.error_at(token, f"expected epoch milliseconds up to {_LAST_MS}, found {token.text}")
        return int(token.text)
    if cursor.at_words("TIMESTAMP"):
        cursor.advance()
        return _iso_ms(cursor)
    if not cursor.is_text():
        raise cursor.error("epoch milliseconds", "a timestamp in single quotes")
    return _iso_ms(cursor)


def parse_time(text: str) -> int:
    """Parse a text without quotes that is a timestamp, and return epoch milliseconds.

    Raises:
        StatementError: The text is no timestamp.
    """
    written = text.strip() if text.strip().isdecimal() else f"'{text.replace(chr(39), chr(39) * 2)}'"
    (statement,) = split(written)
    cursor = Cursor(statement)
    time_ms = parse_timestamp(cursor)
    cursor.expect_end()
    return time_ms


def _iso_ms(cursor: Cursor) -> int:
    token = cursor.peek()
    text = cursor.text("a timestamp")
    found = _ISO_8601.fullmatch(text.strip().upper())
    instant = _instant(found) if found else None
    if found is None or instant is None:
        raise cursor.error_at(token, f"expected a timestamp such as '2024-05-31 12:00:00.000', found '{text}'")
    fraction = (found["fraction"] or "").rstrip("0")
    if len(fraction) > _TIMESTAMP_DIGITS:
        raise cursor.error_at(token, "a timestamp is a whole number of milliseconds", hint="write three digits at most")
    return (instant - _EPOCH) // timedelta(milliseconds=1) + int(fraction.ljust(_TIMESTAMP_DIGITS, "0"))


def _instant(found: re.Match[str]) -> datetime | None:
    """Convert a match to an instant, without fractions of a second; None if the day or time of day does not exist."""
    try:
        time = (found["minute"] or "00:00") + (found["second"] or "")
        return datetime.fromisoformat(f"{found['date']}T{time}{found['offset'] or 'Z'}")
    except ValueError:
        return None
