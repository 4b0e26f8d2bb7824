"""Dates and times that Python cannot hold: lets Great Expectations fetch them, although PySpark's `collect` raises.

Python's dates end at the years 1 and 9999. `row_values.fetched` returns a date or time beyond them as its text, and any other
one as Python's type. Here such a text becomes a date or time that Great Expectations can order and print.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from threading import get_ident
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.types import DataType, DateType, TimestampNTZType, TimestampType

from lakehold.subscribe.row_values import fetched


class _Beyond:
    """A mixin of values beyond Python's range.

    Such a value is ordered (`<`, `>`) as the first or last one in range, equals only one of the same text, and prints its text.
    """

    text = ""

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Beyond) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> Any:
        return type(self).of, (self.text,)  # type: ignore[attr-defined]


class _DateBeyond(_Beyond, date):
    @staticmethod
    def of(text: str) -> _DateBeyond:
        nearest = date.max if text.startswith("+") else date.min
        found = _DateBeyond(nearest.year, nearest.month, nearest.day)
        found.text = text
        return found


class _TimeBeyond(_Beyond, datetime):
    @staticmethod
    def of(text: str) -> _TimeBeyond:
        is_late = text.startswith("+")
        found = _TimeBeyond.combine(date.max if is_late else date.min, time.max if is_late else time.min)
        found.text = text
        return found


@contextmanager
def fetching_dates_beyond(frame: DataFrame) -> Iterator[None]:
    """Let `collect` of frames of the class of `frame` return every date and time, in this thread, while the context lasts.

    Great Expectations compares in Spark and fetches a few values by `collect`; it has no hook for fetching them differently.
    So this replaces the method of the class, and in other threads the replacement raises as before.
    """
    kind, thread = type(frame), get_ident()
    collect = kind.collect

    def collect_all(self: DataFrame) -> list[Row]:
        try:
            return collect(self)
        except (ValueError, OverflowError):
            if get_ident() != thread:
                raise
            return _rows(self)

    kind.collect = collect_all  # type: ignore[method-assign]
    try:
        yield
    finally:
        kind.collect = collect  # type: ignore[method-assign]


def _rows(frame: DataFrame) -> list[Row]:
    row, fields = Row(*frame.columns), frame.schema.fields
    return [
        row(*(_with_beyond(value, field.dataType) for value, field in zip(values, fields, strict=True)))
        for values in fetched(frame)
    ]


def _with_beyond(value: Any, kind: DataType) -> Any:
    """Convert the text of a date or time beyond Python's range; return any other value as it is.

    Values inside arrays, maps and structures stay texts.
    """
    if not isinstance(value, str):
        return value
    match kind:
        case DateType():
            return _DateBeyond.of(value)
        case TimestampType() | TimestampNTZType():
            return _TimeBeyond.of(value)
        case _:
            return value
