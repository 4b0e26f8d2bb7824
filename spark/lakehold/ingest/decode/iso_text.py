"""ISO 8601 texts as dates and timestamps: SQL expressions.

The rules of `logical.py` use them. Debezium writes one form, which Spark casts. Other producers may write any form of the
standard. So patterns split the texts of declared columns (those of a column list, for JSON without a schema), and reassemble them
in that form. A text that names no valid time (30 February, second 60) becomes null,
and so does a text of a form that is not listed here: Spark's own cast would read `2024031` as a year, `10:15` as a time of
today, and ignore text after a date.

Each expression has few parts and computes none twice: Spark takes a fraction of a millisecond to plan each of them,
for each column and each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lakehold.ingest.decode import temporal

_YEAR = "(?:[+-][0-9]{4,7}|[0-9]{4})"
_USUAL_DAY = f"{_YEAR}-[0-9]{{2}}-[0-9]{{2}}"
_USUAL = f"^{_USUAL_DAY}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{{1,9}})?"
_USUAL_ZONED = f"{_USUAL}(?:Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)$"
_USUAL_LOCAL = f"{_USUAL}Z?$"
_USUAL_DATE = f"^{_USUAL_DAY}(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})?$"
"""The form that Debezium writes and Spark casts."""

_CALENDAR = f"^(?:{_USUAL_DAY}|[0-9]{{8}})(?![0-9])"
_ORDINAL = f"^(?:{_YEAR}-[0-9]{{3}}|[0-9]{{7}})(?![0-9])"
_ANY_DAY = (
    f"(?:{_USUAL_DAY}|[0-9]{{8}}|{_YEAR}-[0-9]{{3}}|[0-9]{{7}}|{_YEAR}-W[0-5][0-9]-[1-7]|[0-9]{{4}}W[0-5][0-9][1-7])"
)
"""2024-01-31, 20240131, 2024-031, 2024031, 2024-W05-3 and 2024W053."""

_CLOCK = "(?:[01][0-9]|2[0-3])(?::?[0-5][0-9](?::?[0-5][0-9](?:[.,][0-9]+)?)?)?|24(?::?00(?::?00(?:[.,]0+)?)?)?"
"""10, 10:15, 1015, 10:15:30, 101530, and a fraction of the second of any length; 24:00 is the end of a day."""

_OFFSET = "(?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?"
_ZONED = f"^{_ANY_DAY}[Tt ](?:{_CLOCK}) ?(?:[Zz]|[+-]{_OFFSET})$"
_LOCAL = f"^{_ANY_DAY}(?:[Tt ](?:{_CLOCK}))?(?: ?(?:[Zz]|[+-]00(?::?00)?))?$"
_DAY = f"^{_ANY_DAY}(?:[Tt ]00(?::?00(?::?00)?)?(?:[.,]0+)?)?(?:[Zz]|[+-]{_OFFSET})?$"
"""A day may have an offset, or be a midnight; any other time of day would get lost."""

_QUOTED_NUMBER = "-?(?:[0-9]|[1-9](?:[0-9]{1,2}|[0-9]{4}|[0-9]{8}|[0-9]{10}|[0-9]{12}|[0-9]{14,}))"
"""A number in quotes, of as many digits as cannot be a year, a month, a day, or a moment written without punctuation."""

_LAST = ("infinity", "+294247-01-10T04:00:25.2Z", "-5877611-06-21Z")
_FIRST = ("-infinity", "-290308-12-21T19:59:27.6Z", "-5877611-06-22Z")
"""PostgreSQL's infinity: as a word, and as the timestamp and the date that Debezium's ISO mode writes out."""

_LAST_NUMBERS = ("9223372036825200000", "9223372036854775807")
_FIRST_NUMBERS = ("-9223372036832400000", "-9223372036854775808")
_LAST_DAYS = ("-622191235", "-622191234", "-622191233", "-622191232", "-2147472692")
_FIRST_DAYS = ("622191231", "622191232", "622191233", "622191234", "-625821272", "-2147472691")
"""PostgreSQL's infinity as numbers, see `temporal`."""


def date_from_text(text: str) -> str:
    """Write a date from Debezium's ISO text, with or without a zone (`2026-11-21`, `2026-11-21Z`); the zone is ignored."""
    day = f"try_cast(regexp_extract({text}, '^{_USUAL_DAY}', 0) AS DATE)"
    return _else_infinity(text, temporal.day, f"CASE WHEN {text} RLIKE '{_USUAL_DATE}' THEN {day} END")


def instant_from_text(text: str) -> str:
    """Write a timestamp with zone from Debezium's ISO text, which names its zone."""
    cast = f"CASE WHEN {text} RLIKE '{_USUAL_ZONED}' THEN try_cast({text} AS TIMESTAMP) END"
    return _else_infinity(text, temporal.instant, cast)


def timestamp_from_text(text: str) -> str:
    """Write a timestamp without zone from Debezium's ISO text; the `Z` that Debezium adds is ignored."""
    cast = f"CASE WHEN {text} RLIKE '{_USUAL_LOCAL}' THEN try_cast({text} AS TIMESTAMP_NTZ) END"
    return _else_infinity(text, temporal.local, cast)


def date_from_token(token: str) -> str:
    """Write a date from the text of a JSON value: a number of days since 1970, or ISO text in quotes."""
    text = _unquoted(token)
    days = f"date_from_unix_date(try_cast({text} AS INT))"
    return (
        f"CASE WHEN {_is_number(token)} THEN {_else_infinity(text, temporal.day, days, _LAST_DAYS, _FIRST_DAYS)} "
        f"WHEN {text} RLIKE '{_DAY}' THEN {_day_of(text)} ELSE {_else_infinity(text, temporal.day, 'NULL')} END"
    )


def instant_from_token(token: str) -> str:
    """Write a timestamp with zone from the text of a JSON value: epoch milli- or microseconds, or ISO text in quotes."""
    text = _unquoted(token)
    zone = f"upper(regexp_extract({text}, '([Zz]|[+-]{_OFFSET})$', 1))"
    return _from_token(token, temporal.instant, "TIMESTAMP", {_USUAL_ZONED: text, _ZONED: _usual(text, zone)})


def timestamp_from_token(token: str) -> str:
    """Write a timestamp without zone from the text of a JSON value: epoch milli- or microseconds, or ISO text in quotes."""
    text = _unquoted(token)
    return _from_token(token, temporal.local, "TIMESTAMP_NTZ", {_USUAL_LOCAL: text, _LOCAL: _usual(text, "'Z'")})


def _from_token(token: str, from_micros: Callable[[str], str], kind: str, forms: Mapping[str, str]) -> str:
    """Write the value of a JSON value.

    Args:
        token: The value, text in its quotes.
        from_micros: Converts epoch microseconds to the wanted type.
        kind: The wanted type.
        forms: For each form of a text an expression that Spark can cast.
    """
    text = _unquoted(token)
    cases = " ".join(f"WHEN {text} RLIKE '{form}' THEN try_cast({usual} AS {kind})" for form, usual in forms.items())
    # Up to 14 digits are milliseconds (until the year 5138), more are microseconds.
    digits = f"CASE WHEN {text} RLIKE '^-?[0-9]{{1,14}}$' THEN concat({text}, '000') ELSE {text} END"
    number = _else_infinity(
        text, from_micros, from_micros(f"try_cast({digits} AS BIGINT)"), _LAST_NUMBERS, _FIRST_NUMBERS
    )
    return f"CASE WHEN {_is_number(token)} THEN {number} {cases} ELSE {_else_infinity(text, from_micros, 'NULL')} END"


def _usual(text: str, zone: str) -> str:
    """Write a text that has one of the listed forms in the usual form."""
    next_day = f"CASE WHEN {text} RLIKE '[Tt ]24' THEN 1 ELSE 0 END"
    digits = f"rpad(replace(regexp_extract({text}, '[Tt ]([0-9:]+)', 1), ':'), 6, '0')"
    clock = f"regexp_replace(regexp_replace({digits}, '^24', '00'), '^(..)(..)(..)$', 'T$1:$2:$3.')"
    fraction = f"left(regexp_extract({text}, '[.,]([0-9]+)', 1), 6)"
    return f"concat(CAST(date_add({_day_of(text)}, {next_day}) AS STRING), {clock}, {fraction}, '0', {zone})"


def _day_of(text: str) -> str:
    """Write the day of a text that has one of the forms; null if the calendar has no such day."""
    calendar = f"regexp_replace({text}, '^({_YEAR})-?([0-9]{{2}})-?([0-9]{{2}}).*$', '$1-$2-$3')"
    ordinal = f"regexp_replace({text}, '^({_YEAR})-?([0-9]{{3}}).*$', '$1-$2')"
    year = f"regexp_extract({text}, '^{_YEAR}', 0)"
    week, day = (f"CAST(regexp_extract({text}, 'W(..)-?(.)', {group}) AS INT)" for group in (1, 2))
    # 4 January is in the first week, 28 December in the last one.
    first_monday = f"next_day(date_sub(try_cast(concat({year}, '-01-04') AS DATE), 7), 'MO')"
    of_week = f"date_add({first_monday}, 7 * {week} + {day} - 8)"
    is_week = f"{week} BETWEEN 1 AND weekofyear(try_cast(concat({year}, '-12-28') AS DATE))"
    return (
        f"CASE WHEN {text} RLIKE '{_CALENDAR}' THEN try_cast({calendar} AS DATE) "
        f"WHEN {text} RLIKE '{_ORDINAL}' THEN try_to_date({ordinal}, 'yyyy-DDD') WHEN {is_week} THEN {of_week} END"
    )


def _is_number(token: str) -> str:
    return f"{token} RLIKE '^(?:-?[0-9]+|\"{_QUOTED_NUMBER}\")$'"


def _unquoted(token: str) -> str:
    return f"trim('\"' FROM {token})"


def _else_infinity(
    text: str,
    at: Callable[[str], str],
    otherwise: str,
    last: Sequence[str] = _LAST,
    first: Sequence[str] = _FIRST,
) -> str:
    """Write the last or first time if a text means infinity, else `otherwise`; `at` converts microseconds."""
    listed = (", ".join(f"'{one}'" for one in texts) for texts in (last, first))
    at_last, at_first = (at(f"{micros}L") for micros in (temporal.LAST, temporal.FIRST))
    is_last, is_first = (f"{text} IN ({texts})" for texts in listed)
    return f"CASE WHEN {is_last} THEN {at_last} WHEN {is_first} THEN {at_first} ELSE {otherwise} END"
