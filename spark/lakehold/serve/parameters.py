"""Parameters of prepared statements: each `?` becomes the literal of its value, so that any statement may have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from lakehold.errors import LakeholdError
from lakehold.spark_sql import literal
from lakehold.sql.dialect import tokenize

_TOO_MANY = 2
"""Rows from which they are too many: a client may send any number."""


def parameter_schema(text: str) -> pa.Schema:
    """Return a column for each parameter. Their types are not known: clients send what they have, and Spark casts text."""
    return pa.schema([pa.field(f"parameter_{number}", pa.utf8()) for number, _ in enumerate(_places(text), 1)])


def with_nulls(text: str) -> str:
    """Return the statement with NULL for each parameter, to find its columns."""
    return _replaced(text, ["NULL"] * len(_places(text)))


def bound(text: str, batches: Iterable[pa.RecordBatch]) -> str:
    """Return the statement with the values of one row for its parameters.

    Raises:
        LakeholdError: The number of rows or of values does not fit, or a value has no literal.
    """
    places = _places(text)
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        rows += zip(*(column.to_pylist() for column in batch.slice(0, _TOO_MANY).columns), strict=True)
        if len(rows) >= _TOO_MANY:
            break
    if len(rows) != 1 or len(rows[0]) != len(places):
        raise _unfit(f"It takes {len(places)} values, in one row.")
    try:
        return _replaced(text, [literal(value) for value in rows[0]])
    except TypeError as error:
        raise _unfit(f"{error}.") from None


def _places(text: str) -> list[int]:
    return [token.start for token in tokenize(text) if text[token.start : token.end + 1] == "?"]


def _replaced(text: str, literals: Sequence[str]) -> str:
    for start, value in reversed(list(zip(_places(text), literals, strict=True))):
        text = f"{text[:start]}{value}{text[start + 1 :]}"
    return text


def _unfit(detail: str) -> LakeholdError:
    return LakeholdError("the parameters do not fit the statement", code="parameters", detail=detail)
