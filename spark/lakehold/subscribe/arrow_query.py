"""Plain queries over diffs in this process: Arrow picks the columns and compares, with Spark's meaning of nulls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc

from lakehold.subscribe.plain_select import (
    ALL_COLUMNS,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Constant,
    IsNull,
    Negated,
    OneOf,
    PlainSelect,
)

_COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_INT64 = range(-(2**63), 2**63)


class _NeedsSpark(Exception):
    """Arrow and Spark might differ, or it is an error that Spark explains."""


@dataclass(frozen=True)
class ArrowQuery:
    """A plain query of which Arrow's answer is known to be Spark's.

    Attributes:
        condition: Which rows; None: all.
        places: Where the columns of the result are among those of the table.
        result: The columns of the result.
        table: The columns of the table.
    """

    condition: Condition | None
    places: tuple[int, ...]
    result: pa.Schema
    table: pa.Schema

    def of(self, diffs: pa.Table) -> pa.Table:
        """The query over diffs of the table: consolidated ones need not be afterwards."""
        first = diffs.num_columns - len(self.table)
        if self.condition is not None:
            diffs = diffs.filter(self._holds(self.condition, diffs.select(range(first, diffs.num_columns))))
        places = [*range(first), *(first + place for place in self.places)]
        return diffs.select(places).rename_columns([*diffs.column_names[:first], *self.result.names])

    def _holds(self, condition: Condition, rows: pa.Table) -> pa.ChunkedArray:
        """Whether the condition holds for each row; null where that is not known."""
        match condition:
            case AllOf(conditions):
                return reduce(pc.and_kleene, (self._holds(each, rows) for each in conditions))
            case AnyOf(conditions):
                return reduce(pc.or_kleene, (self._holds(each, rows) for each in conditions))
            case Negated(negated):
                return pc.invert(self._holds(negated, rows))
            case IsNull(column):
                return self._column(column, rows).is_null()
            case OneOf(column, constants):
                values = self._column(column, rows)
                found = pc.is_in(values, value_set=pa.array(constants, _wide(values.type)))
                return pc.if_else(values.is_valid(), found, None)
            case Comparison(column, operator, constant):
                values = self._column(column, rows)
                return _COMPARE[operator](values, pa.scalar(constant, _wide(values.type)))
            case other:
                assert_never(other)

    def _column(self, name: str, rows: pa.Table) -> pa.ChunkedArray:
        values = rows.column(self.table.get_field_index(name))
        return values.cast(_wide(values.type))


def arrow_query(select: PlainSelect, table: pa.Schema) -> ArrowQuery | None:
    """`select` over a table with these columns; None: Spark has to answer it, or to say what is wrong with it."""
    try:
        selected = list(_selected_columns(select, table))
        for column, constant in _compared(select.condition):
            _check_comparable(table.field(_place(column, table)).type, constant)
    except _NeedsSpark:
        return None
    result = pa.schema([table.field(place).with_name(name) for place, name in selected])
    return ArrowQuery(select.condition, tuple(place for place, _ in selected), result, table)


def _selected_columns(select: PlainSelect, table: pa.Schema) -> Iterator[tuple[int, str]]:
    for item in select.columns:
        if item == ALL_COLUMNS:
            yield from enumerate(table.names)
        else:
            yield _place(item[0], table), item[1]


def _place(name: str, table: pa.Schema) -> int:
    """The column written as it is called: in another case Spark would show it as written, or not find it."""
    if [known.lower() for known in table.names].count(name.lower()) == 1 and name in table.names:
        return int(table.get_field_index(name))
    raise _NeedsSpark


def _compared(condition: Condition | None) -> Iterator[tuple[str, Constant | None]]:
    """The columns of a condition with what they are compared with; None: with nothing."""
    match condition:
        case AllOf(conditions) | AnyOf(conditions):
            for each in conditions:
                yield from _compared(each)
        case Negated(negated):
            yield from _compared(negated)
        case IsNull(column):
            yield column, None
        case OneOf(column, constants):
            yield from ((column, constant) for constant in constants)
        case Comparison(column, _, constant):
            yield column, constant


def _check_comparable(of: pa.DataType, constant: Constant | None) -> None:
    """Numbers that are no integers, times and everything nested have rules of their own in Spark."""
    match constant:
        case None:
            fits = True
        case bool():
            fits = pa.types.is_boolean(of)
        case int():
            fits = of in {pa.int32(), pa.int64()} and constant in _INT64
        case str():
            fits = pa.types.is_string(of)
    if not fits:
        raise _NeedsSpark


def _wide(of: pa.DataType) -> pa.DataType:
    """What values and constants are compared as."""
    return pa.int64() if pa.types.is_integer(of) else of
