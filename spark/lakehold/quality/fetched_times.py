"""Dates and times as Great Expectations fetches them: in UTC, and also those that Python cannot hold.

PySpark's `collect` returns times without a zone, in the zone of the process, so that no bound of a suite compares with them. Here
they have the zone UTC; a `timestamp_ntz`, which has no zone, counts as UTC.

Python's dates end at the years 1 and 9999, and `collect` raises for others. `row_values.fetched` returns a date or time beyond
them as its text. Here such a text becomes a date or time that Great Expectations can order and print.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
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
        found = _TimeBeyond.combine(date.max if is_late else date.min, time.max if is_late else time.min, UTC)
        found.text = text
        return found


@contextmanager
def fetching_in_utc(frame: DataFrame) -> Iterator[None]:
    """Let `collect` of frames of the class of `frame` return such dates and times, in this thread, while the context lasts.

    Great Expectations compares in Spark and fetches a few values by `collect`; it has no hook for fetching them differently.
    So this replaces the method of the class; other threads keep the method as it was.
    """
    kind, thread = type(frame), get_ident()
    collect = kind.collect

    def collect_in_utc(self: DataFrame) -> list[Row]:
        return _rows(self) if get_ident() == thread else collect(self)

    kind.collect = collect_in_utc  # type: ignore[method-assign]
    try:
        yield
    finally:
        kind.collect = collect  # type: ignore[method-assign]


def in_utc(bound: Any) -> Any:
    """Give a time without a zone the zone UTC; return any other value as it is."""
    return bound.replace(tzinfo=UTC) if isinstance(bound, datetime) and bound.tzinfo is None else bound


def without_zone(bound: Any) -> Any:
    """Return a time in UTC without its zone; return any other value as it is."""
    is_aware = isinstance(bound, datetime) and bound.tzinfo is not None
    return bound.astimezone(UTC).replace(tzinfo=None) if is_aware else bound


def as_in_rows(value: Any) -> Any:
    """Convert a fetched value to its form in rows of queries: times in UTC without a zone, and texts of those beyond Python."""
    match value:
        case _Beyond():
            return value.text
        case datetime():
            return without_zone(value)
        case dict():
            return {name: as_in_rows(each) for name, each in value.items()}
        case _:
            return value


def _rows(frame: DataFrame) -> list[Row]:
    row, fields = Row(*frame.columns), frame.schema.fields
    return [
        row(*(_comparable(value, field.dataType) for value, field in zip(values, fields, strict=True)))
        for values in fetched(frame)
    ]


def _comparable(value: Any, kind: DataType) -> Any:
    """Convert a date or time so that it compares with the bounds of a suite; return any other value as it is.

    Values inside arrays, maps and structures stay as `fetched` returns them.
    """
    match kind, value:
        case DateType(), str():
            return _DateBeyond.of(value)
        case TimestampType() | TimestampNTZType(), str():
            return _TimeBeyond.of(value)
        case TimestampType() | TimestampNTZType(), _:
            return in_utc(value)
        case _:
            return value
