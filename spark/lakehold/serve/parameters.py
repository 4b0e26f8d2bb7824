"""Parameters of prepared statements: each `?` becomes the literal of its value, so that any statement may have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from itertools import pairwise
from typing import Any

import pyarrow as pa

from lakehold.errors import LakeholdError
from lakehold.spark_sql import literal
from lakehold.sql.text.dialect import tokenize
from lakehold.times import epoch_ms

_TOO_MANY = 2
"""Rows from which they are too many: a client may send any number."""

_OF_SPARK = {
    **{"VERSION AS OF": "'main'", "SYSTEM_VERSION AS OF": "'main'"},
    **{"TIMESTAMP AS OF": "current_timestamp()", "SYSTEM_TIME AS OF": "current_timestamp()"},
}
"""What stands for a parameter after these words, which are Spark's own, until it has a value."""
_WITHOUT_VALUE = {
    **_OF_SPARK,
    **{"LIMIT": "0", "OFFSET": "0", "AS OF": "LATEST", "AT LEAST": "0", "UP TO": f"{2**63 - 1}"},
    **{"ADVANCE TO": "0", "AT": "0"},
}
"""What stands for a parameter after these words until it has a value: NULL may not stand there."""
_UNTIL_A_TIME = _WITHOUT_VALUE | {"AS OF": "EARLIEST"}
"""The same in a statement with UP TO, whose time may have passed."""
_WORDS = 3
"""The most words before a parameter that say what it is."""


def parameter_schema(text: str) -> pa.Schema:
    """Return a column for each parameter. Their types are not known: clients send what they have, and Spark casts text."""
    return pa.schema([pa.field(f"parameter_{number}", pa.utf8()) for number, _ in enumerate(_places(text), 1)])


def with_nulls(text: str) -> str:
    """Return the statement with NULL for each parameter, or with what may stand in its place, to find its columns."""
    places, words = _places(text), [token.text.upper() for token in tokenize(text)]
    values = _UNTIL_A_TIME if ("UP", "TO") in pairwise(words) else _WITHOUT_VALUE
    return _replaced(text, places, [values.get(place.words, "NULL") for place in places])


def bound(text: str, batches: Iterable[pa.RecordBatch]) -> str:
    """Return the statement with the values of one row for its parameters. Without parameters there need not be a row.

    Raises:
        LakeholdError: The number of rows or of values does not fit, or a value has no literal.
    """
    places = _places(text)
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        rows += zip(*(column.to_pylist() for column in batch.slice(0, _TOO_MANY).columns), strict=True)
        if len(rows) >= _TOO_MANY:
            break
    if (len(rows) != 1 or len(rows[0]) != len(places)) and (rows or places):
        raise _unfit(f"It takes {len(places)} values, in one row.")
    try:
        values = rows[0] if rows else ()
        return _replaced(text, places, [_literal(place, value) for place, value in zip(places, values, strict=True)])
    except TypeError as error:
        raise _unfit(f"{error}.") from None


@dataclass(frozen=True)
class _Place:
    """The place of a parameter, and the words before it if they ask for a number or a time."""

    start: int
    words: str


def _places(text: str) -> list[_Place]:
    tokens = tokenize(text)
    found = []
    for number, token in enumerate(tokens):
        if text[token.start : token.end + 1] == "?":
            before = " ".join(each.text.upper() for each in tokens[max(number - _WORDS, 0) : number])
            words = (words for words in _WITHOUT_VALUE if f" {before}".endswith(f" {words}"))
            found.append(_Place(token.start, next(words, "")))
    return found


def _literal(place: _Place, value: Any) -> str:
    """Return the literal of a value. Drivers send text: it is a number where only a number or a time may stand."""
    if place.words in _OF_SPARK:
        return literal(value)
    if place.words and isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime.combine(value, time.min, UTC)
        return str(epoch_ms(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)))
    is_number = place.words and isinstance(value, str) and value.isascii() and value.isdecimal()
    return value if is_number else literal(value)


def _replaced(text: str, places: Sequence[_Place], literals: Sequence[str]) -> str:
    for place, value in reversed(list(zip(places, literals, strict=True))):
        # Without blanks a negative number after a minus would begin a comment, and a word after a number would join it.
        text = f"{text[: place.start]} {value} {text[place.start + 1 :]}"
    return text


def _unfit(detail: str) -> LakeholdError:
    return LakeholdError("the parameters do not fit the statement", code="parameters", detail=detail)
