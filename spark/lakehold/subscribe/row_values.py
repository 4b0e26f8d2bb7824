"""Values of Arrow columns as Python values in rows: PySpark's types, and text for values that Python cannot hold.

Rows of queries, of SUBSCRIBE and for durable clients are made here.

Python's dates and times end at the years 1 and 9999, while tables may hold others. Such a value becomes its text in ISO 8601,
with a sign before years of more than four digits and before negative ones: `+20232-01-01`, `-0043-03-15T00:00:00`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from lakehold.subscribe.project import as_list_of_entries, offsets

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_US = 24 * 60 * 60 * 1_000_000
_DAYS_OF_400_YEARS = 146_097
"""Period after which the calendar repeats."""

_DAYS = range(date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY + 1)
_MICROSECONDS = range(_DAYS.start * _DAY_US, _DAYS.stop * _DAY_US)
"""Ranges of Python's `date` and `datetime`, relative to 1970."""


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    """Convert a table to tuples: `Row` for structs, `dict` for maps, instants in UTC without a zone."""
    columns = [[value for chunk in column.chunks for value in _values(chunk)] for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def is_beyond_python(array: pa.Array) -> bool:
    """Return whether `array` has a value that Python's dates and times cannot hold."""
    kind = array.type
    if pa.types.is_map(kind):
        return is_beyond_python(as_list_of_entries(array))
    if pa.types.is_list(kind):
        return is_beyond_python(array.flatten())
    if pa.types.is_struct(kind):
        return any(map(is_beyond_python, array.flatten()))
    if pa.types.is_date32(kind):
        return not _are_held(array.cast(pa.int32()), _DAYS)
    return pa.types.is_timestamp(kind) and not _are_held(_microseconds(array).cast(pa.int64()), _MICROSECONDS)


def fetched(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Fetch the rows of a data frame as `tuples`; types that Arrow lacks become text, as Spark casts them."""
    return tuples(of_arrow_types(frame).toArrow())


def of_arrow_types(frame: DataFrame) -> DataFrame:
    """Cast columns whose types Arrow lacks to text; the columns are then called c0, c1 and so on."""
    if not any(_is_beyond_arrow(field.dataType) for field in frame.schema.fields):
        return frame
    numbered = frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))
    columns = [
        F.col(field.name).cast("string") if _is_beyond_arrow(field.dataType) else F.col(field.name)
        for field in numbered.schema.fields
    ]
    return numbered.select(*columns)


def _is_beyond_arrow(kind: DataType) -> bool:
    match kind:
        case ArrayType(elementType=element):
            return _is_beyond_arrow(element)
        case MapType(keyType=key, valueType=value):
            return _is_beyond_arrow(key) or _is_beyond_arrow(value)
        case StructType(fields=fields, names=names):
            return len({*names}) < len(names) or any(_is_beyond_arrow(field.dataType) for field in fields)
        case _:
            return isinstance(kind, YearMonthIntervalType | CalendarIntervalType | VariantType)


def _values(array: pa.Array) -> list[Any]:
    """Convert the values of a column, field, key or element."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_map(kind):
        pairs = as_list_of_entries(array)
        entries = list(zip(*map(_values, pairs.flatten().flatten()), strict=True))
        return [None if found is None else _mapping(found) for found in _lists(array, offsets(pairs), entries)]
    if pa.types.is_list(kind):
        return _lists(array, offsets(array), _values(array.flatten()))
    if pa.types.is_date32(kind):
        return _within(array, pa.int32(), _DAYS, _date_text)
    if pa.types.is_timestamp(kind):
        return _within(_microseconds(array), pa.int64(), _MICROSECONDS, _time_text)
    return _singles(array)


def _singles(array: pa.Array) -> list[Any]:
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError:
        # Other writers, or a cast in a query, may store any bytes as text; Java shows them in this way, too.
        values = array.cast(pa.binary() if pa.types.is_string(array.type) else pa.large_binary()).to_pylist()
        return [None if value is None else value.decode(errors="replace") for value in values]


def _mapping(entries: list[tuple[Any, Any]]) -> dict[Any, Any] | list[tuple[Any, Any]]:
    """Build the dictionary of a map, or keep its pairs if a key is a list, which Python cannot hash."""
    try:
        return dict(entries)
    except TypeError:
        return entries


def _structs(array: pa.Array) -> list[Row | None]:
    row = Row(*(field.name for field in array.type))
    fields = list(zip(*map(_values, array.flatten()), strict=True)) or [()] * len(array)
    return [row(*values) if there else None for there, values in zip(array.is_valid().to_pylist(), fields, strict=True)]


def _lists(array: pa.Array, begins: pa.Array, elements: list[Any]) -> list[list[Any] | None]:
    spans = zip(array.is_valid().to_pylist(), pairwise(begins.to_pylist()), strict=True)
    return [elements[begin:end] if there else None for there, (begin, end) in spans]


def _within(array: pa.Array, stored: pa.DataType, held: range, text: Callable[[int], str]) -> list[Any]:
    """Convert the values of `array`, which is stored as numbers; values that Python cannot hold become text."""
    numbers = array.cast(stored)
    if _are_held(numbers, held):
        return list(array.to_pylist())
    is_held = pc.and_(pc.greater_equal(numbers, held.start), pc.less(numbers, held.stop))
    values = pc.if_else(is_held, array, None).to_pylist()
    beyond = zip(values, numbers.to_pylist(), strict=True)
    return [text(number) if value is None and number is not None else value for value, number in beyond]


def _microseconds(instants: pa.Array) -> pa.Array:
    return instants.cast(pa.timestamp("us", instants.type.tz), safe=False).cast(pa.timestamp("us"))


def _are_held(numbers: pa.Array, held: range) -> bool:
    lowest, highest = pc.min_max(numbers).as_py().values()
    return lowest is None or (lowest in held and highest in held)


def _date_text(days: int) -> str:
    cycles, within = divmod(days - _DAYS.start, _DAYS_OF_400_YEARS)
    like = date.min + timedelta(days=within)
    year = like.year + 400 * cycles
    sign = "+" if year > date.max.year else "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{like:%m-%d}"


def _time_text(microseconds: int) -> str:
    days, within = divmod(microseconds, _DAY_US)
    at = datetime.combine(date.min, time()) + timedelta(microseconds=within)
    return f"{_date_text(days)}T{at.time().isoformat()}"
