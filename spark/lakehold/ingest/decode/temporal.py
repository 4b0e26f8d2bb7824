"""Dates, times and timestamps: SQL expressions from the numbers and texts that Debezium and Connect send.

PostgreSQL's `infinity` and `-infinity` become 9999-12-31 23:59:59.999999 and 0001-01-01, as Debezium's own sinks do;
Debezium sends them as numbers beyond any timestamp of PostgreSQL, or as these words. Every expression is null for null
and for what it cannot read, and never fails a query.
"""

from __future__ import annotations

_LAST = "9999-12-31 23:59:59.999999"
_FIRST = "0001-01-01 00:00:00"
_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"

_INFINITE = 9_223_372_036_825_200_000
_MINUS_INFINITE = -9_223_372_036_832_400_000
"""Debezium's timestamps at infinity are these numbers, or those of int64 beyond them, in micro- and nanoseconds ..."""

_INFINITE_MS = 9_223_372_036_825_200
_MINUS_INFINITE_MS = -9_223_372_036_832_400
"""... and these in milliseconds, as `timestamp(3)` has them; microseconds of all that lies between fit int64."""

_MAX_DATE_DAYS = 2_145_042_905
_MIN_DATE_DAYS = -2_440_588
"""The dates of PostgreSQL, 4714-11-24 BC to 5874897-12-31, as days since 1970."""

_STREAMED_INFINITE_DAYS = -2_147_472_692


def date_from_days(days: str) -> str:
    """A date from days since 1970 (int).

    Debezium's infinity does not fit: a snapshot has its 106,751,991,166 days cut to 32 bits, the two ranges below, of which
    no date of PostgreSQL meets the first and the second would be in the year 1,705,490. Streaming has PostgreSQL's own
    infinity, the greatest int of days since 2000, which becomes negative. What else is no date of PostgreSQL is -infinity.
    """
    return (
        f"CASE WHEN {days} > {_MAX_DATE_DAYS} OR {days} = {_STREAMED_INFINITE_DAYS} "
        f"OR {days} BETWEEN -622191235 AND -622191232 THEN DATE'9999-12-31' "
        f"WHEN {days} < {_MIN_DATE_DAYS} OR {days} BETWEEN 622191231 AND 622191234 THEN DATE'0001-01-01' "
        f"ELSE date_from_unix_date({days}) END"
    )


def date_from_text(text: str) -> str:
    """A date from ISO text, with or without a zone (`2026-11-21`, `2026-11-21Z`)."""
    words = f"CASE {text} WHEN 'infinity' THEN DATE'9999-12-31' WHEN '-infinity' THEN DATE'0001-01-01'"
    return f"{words} ELSE try_cast(regexp_replace({text}, '(Z|[+-][0-9]{{2}}:[0-9]{{2}})$', '') AS DATE) END"


def timestamp_from_ms(n: str) -> str:
    """A timestamp without zone from epoch milliseconds."""
    return _bounded(
        n,
        _INFINITE_MS - 1,
        _MINUS_INFINITE_MS + 1,
        f"timestampadd(MICROSECOND, {n} * 1000L, {_EPOCH})",
        "TIMESTAMP_NTZ",
    )


def timestamp_from_us(n: str) -> str:
    """A timestamp without zone from epoch microseconds."""
    return _bounded(n, _INFINITE - 1, _MINUS_INFINITE + 1, f"timestampadd(MICROSECOND, {n}, {_EPOCH})", "TIMESTAMP_NTZ")


def timestamp_from_ns(n: str) -> str:
    """A timestamp without zone from epoch nanoseconds, rounded down to microseconds."""
    micros = f"({n} - pmod({n}, 1000L)) div 1000L"
    return _bounded(
        n, _INFINITE - 1, _MINUS_INFINITE + 1, f"timestampadd(MICROSECOND, {micros}, {_EPOCH})", "TIMESTAMP_NTZ"
    )


def instant_from_ms(n: str) -> str:
    """A timestamp with zone from epoch milliseconds."""
    return _bounded(n, _INFINITE_MS - 1, _MINUS_INFINITE_MS + 1, f"timestamp_millis({n})", "TIMESTAMP")


def instant_from_us(n: str) -> str:
    """A timestamp with zone from epoch microseconds."""
    return _bounded(n, _INFINITE - 1, _MINUS_INFINITE + 1, f"timestamp_micros({n})", "TIMESTAMP")


def instant_from_ns(n: str) -> str:
    """A timestamp with zone from epoch nanoseconds, rounded down to microseconds."""
    micros = f"({n} - pmod({n}, 1000L)) div 1000L"
    return _bounded(n, _INFINITE - 1, _MINUS_INFINITE + 1, f"timestamp_micros({micros})", "TIMESTAMP")


def instant_from_text(text: str) -> str:
    """A timestamp with zone from ISO text that names its zone; text without one is not understood."""
    zoned = f"(endswith({text}, 'Z') OR {text} RLIKE '[+-][0-9]{{2}}:?[0-9]{{2}}$')"
    parsed = f"CASE WHEN {zoned} THEN try_cast({text} AS TIMESTAMP) END"
    return _worded(text, parsed, "TIMESTAMP")


def timestamp_from_text(text: str) -> str:
    """A timestamp without zone from ISO text; a trailing `Z`, which Debezium's ISO mode adds, means nothing."""
    return _worded(text, f"try_cast({text} AS TIMESTAMP_NTZ)", "TIMESTAMP_NTZ")


def time_from_units(n: str, units_per_second: int) -> str:
    """PostgreSQL's text of a time of day (`12:34:56.789`, no trailing zeros) from a number since midnight."""
    digits = len(str(units_per_second)) - 1
    second = f"({n} div {units_per_second}L)"
    fraction = f"({n} % {units_per_second}L)"
    two = "lpad(CAST({} AS STRING), 2, '0')".format
    shown = f"concat('.', rtrim('0', lpad(CAST({fraction} AS STRING), {digits}, '0')))"
    clock = (
        f"concat({two(f'{second} div 3600L')}, ':', {two(f'({second} div 60L) % 60L')}, ':', {two(f'{second} % 60L')}, "
        f"CASE WHEN {fraction} = 0 THEN '' ELSE {shown} END)"
    )
    return f"CASE WHEN {n} >= 0 THEN {clock} END"


def time_from_text(text: str) -> str:
    """The text of a time of day without the `Z` that Debezium's ISO mode adds."""
    return f"regexp_replace({text}, 'Z$', '')"


def date_from_either(text: str) -> str:
    """A date from ISO text or from a number of days, both as text: for JSON without a schema."""
    number = f"CAST(try_cast({text} AS BIGINT) AS BIGINT)"
    days = f"try_cast({number} AS INT)"
    return f"CASE WHEN {text} RLIKE '^-?[0-9]+$' THEN {date_from_days(days)} ELSE {date_from_text(text)} END"


def timestamp_from_either(text: str, *, zoned: bool) -> str:
    """A timestamp from ISO text or from epoch numbers, both as text: for JSON without a schema.

    A number below 1e14 is milliseconds (1e14 ms is the year 5138), one from there on microseconds (1e14 us is 1973).
    """
    n = f"try_cast({text} AS BIGINT)"
    from_ms, from_us = (instant_from_ms, instant_from_us) if zoned else (timestamp_from_ms, timestamp_from_us)
    number = f"CASE WHEN abs({n}) < 100000000000000L THEN {from_ms(n)} ELSE {from_us(n)} END"
    iso = instant_from_text(text) if zoned else timestamp_from_text(text)
    return f"CASE WHEN {text} RLIKE '^-?[0-9]+$' THEN {number} ELSE {iso} END"


def _bounded(n: str, greatest: int, least: int, inside: str, kind: str) -> str:
    return (
        f"CASE WHEN {n} > {greatest}L THEN {kind}'{_LAST}' WHEN {n} < {least}L THEN {kind}'{_FIRST}' ELSE {inside} END"
    )


def _worded(text: str, parsed: str, kind: str) -> str:
    return f"CASE {text} WHEN 'infinity' THEN {kind}'{_LAST}' WHEN '-infinity' THEN {kind}'{_FIRST}' ELSE {parsed} END"
