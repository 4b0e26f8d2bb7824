"""Dates, times and timestamps: SQL expressions from the numbers that Debezium, Connect and Avro send.

The rules of `logical.py` use them. PostgreSQL's `infinity` and `-infinity` become 9999-12-31 23:59:59.999999 and 0001-01-01, as
in Debezium's own sinks; Debezium sends them as the numbers below. Every other number becomes exactly the date or time it means
(nanoseconds are rounded down to microseconds), or null if the column cannot hold that. Every expression is null for null, and
never fails a query. None depends on the session's time zone.
"""

from __future__ import annotations

LAST = 253_402_300_799_999_999
FIRST = -62_135_596_800_000_000
"""9999-12-31 23:59:59.999999 and 0001-01-01 in microseconds since 1970."""

_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"

_GREATEST, _LEAST = 2**63 - 1, -(2**63)
_INFINITE = 9_223_372_036_825_200_000
_MINUS_INFINITE = -9_223_372_036_832_400_000
"""Debezium's timestamps at infinity are these numbers of micro- or milliseconds, or the ends of int64."""

_INFINITE_MS = 9_223_372_036_825_200
_MINUS_INFINITE_MS = -9_223_372_036_832_400
"""Milliseconds at infinity, as `timestamp(3)` has them."""

_MOST_MS = 9_223_372_036_854_775
"""The most milliseconds whose microseconds fit int64."""

_WRAPPED = f"BETWEEN {_LEAST + 1}L AND {_LEAST + 999_999}L"
"""Microseconds that Debezium makes of PostgreSQL's timestamps in the years 294247 to 294276, which do not fit int64."""

_MAX_DATE_DAYS = 2_145_042_905
_MIN_DATE_DAYS = -2_440_588
"""The dates of PostgreSQL, 4714-11-24 BC to 5874897-12-31, as days since 1970."""

_STREAMED_INFINITE_DAYS = -2_147_472_692
_CUT_MINUS_INFINITE_DAYS = (622_191_231, 622_191_234)
_CUT_INFINITE_DAYS = (-622_191_235, -622_191_232)


def date_from_days(days: str) -> str:
    """Write a date from days since 1970 (int).

    Debezium's infinity does not fit: a snapshot has its 106,751,991,166 days cut to 32 bits, the two ranges above. No date of
    PostgreSQL meets the first range, and the second would be in the year 1,705,490. Streaming has PostgreSQL's own
    infinity, the greatest int of days since 2000, which becomes negative. All other numbers beyond PostgreSQL's dates are
    -infinity.
    """
    first_cut, last_cut = _CUT_MINUS_INFINITE_DAYS
    return (
        f"CASE WHEN {days} BETWEEN {_MIN_DATE_DAYS} AND {first_cut - 1} THEN date_from_unix_date({days}) "
        f"WHEN {days} > {_MAX_DATE_DAYS} OR {days} = {_STREAMED_INFINITE_DAYS} "
        f"OR {days} BETWEEN {_CUT_INFINITE_DAYS[0]} AND {_CUT_INFINITE_DAYS[1]} THEN DATE'9999-12-31' "
        f"WHEN {days} <= {last_cut} THEN DATE'0001-01-01' "
        f"ELSE date_from_unix_date({days}) END"
    )


def sent_ms(n: str) -> str:
    """Write epoch microseconds from milliseconds as Debezium and Connect send them."""
    return (
        f"CASE WHEN {n} BETWEEN {_MINUS_INFINITE_MS + 1}L AND {_INFINITE_MS - 1}L THEN {n} * 1000L "
        f"WHEN {n} IN ({_INFINITE_MS}L, {_INFINITE}L, {_GREATEST}L) THEN {LAST}L "
        f"WHEN {n} IN ({_MINUS_INFINITE_MS}L, {_MINUS_INFINITE}L, {_LEAST}L) THEN {FIRST}L "
        f"ELSE {exact_ms(n)} END"
    )


def sent_us(n: str) -> str:
    """Write epoch microseconds as Debezium sends them."""
    return (
        f"CASE WHEN {n} BETWEEN {_MINUS_INFINITE + 1}L AND {_INFINITE - 1}L THEN {n} "
        f"WHEN {n} IN ({_INFINITE}L, {_GREATEST}L) THEN {LAST}L "
        f"WHEN {n} IN ({_MINUS_INFINITE}L, {_LEAST}L) THEN {FIRST}L "
        f"WHEN {n} {_WRAPPED} THEN NULL ELSE {n} END"
    )


def sent_ns(n: str) -> str:
    """Write epoch microseconds from nanoseconds as Debezium sends them, rounded down."""
    return f"CASE {n} WHEN {_GREATEST}L THEN {LAST}L WHEN {_LEAST}L THEN {FIRST}L ELSE {exact_ns(n)} END"


def exact_ms(n: str) -> str:
    """Write epoch microseconds from milliseconds of any producer; null if they do not fit int64."""
    return f"CASE WHEN {n} BETWEEN -{_MOST_MS}L AND {_MOST_MS}L THEN {n} * 1000L END"


def exact_ns(n: str) -> str:
    """Write epoch microseconds from nanoseconds of any producer, rounded down."""
    return f"({n} div 1000L - CASE WHEN {n} % 1000L < 0 THEN 1L ELSE 0L END)"


def local(micros: str) -> str:
    """Write a timestamp without zone from epoch microseconds."""
    return f"timestampadd(MICROSECOND, {micros}, {_EPOCH})"


def instant(micros: str) -> str:
    """Write a timestamp with zone from epoch microseconds."""
    return f"timestamp_micros({micros})"


def day(micros: str) -> str:
    """Write a date from epoch microseconds."""
    return f"CAST({local(micros)} AS DATE)"


def time_from_units(n: str, units_per_second: int) -> str:
    """Write a time as PostgreSQL and MySQL do (`12:34:56.789`, `-838:59:59`; no trailing zeros), from a number since midnight."""
    digits = len(str(units_per_second)) - 1
    # Quotients are small enough to have a positive counterpart; the least int64 itself has none.
    second, fraction = f"abs({n} div {units_per_second}L)", f"abs({n} % {units_per_second}L)"
    two = "lpad(CAST({} AS STRING), 2, '0')".format
    hours = f"CAST({second} div 3600L AS STRING)"
    shown = f"concat('.', rtrim('0', lpad(CAST({fraction} AS STRING), {digits}, '0')))"
    return (
        f"concat(CASE WHEN {n} < 0 THEN '-' ELSE '' END, CASE WHEN {second} < 36000L THEN '0' ELSE '' END, {hours}, ':', "
        f"{two(f'({second} div 60L) % 60L')}, ':', {two(f'{second} % 60L')}, "
        f"CASE WHEN {fraction} = 0 THEN '' ELSE {shown} END)"
    )
