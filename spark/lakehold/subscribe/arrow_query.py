"""Plain queries over diffs, answered by Arrow in this process instead of by Spark.

A diff is a row with the timestamp at which it was added to a table (`mz_diff` is 1) or removed (-1). A plain query only selects
columns of one table and compares them with constants; run over a table's diffs, it gives the diffs of its result. Nulls have the
meaning that Spark gives them.
"""

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
    """Spark must answer the query: Arrow's answer might differ, or Spark has to explain what is wrong with the query."""


@dataclass(frozen=True)
class ArrowQuery:
    """A plain query for which Arrow is known to give the same answer as Spark.

    Attributes:
        condition: Selects the rows; None selects all.
        places: Zero-based positions of the result's columns in the table.
        result: The columns of the result.
        table: The columns of the table.
    """

    condition: Condition | None
    places: tuple[int, ...]
    result: pa.Schema
    table: pa.Schema

    def of(self, diffs: pa.Table) -> pa.Table:
        """Run the query over diffs of the table.

        `diffs` ends with the columns of the table; those before them (timestamp and diff) come first in the result, too.
        The result has to be consolidated even if the diffs were: rows that differed in other columns may now be equal.
        """
        first = diffs.num_columns - len(self.table)
        if self.condition is not None:
            diffs = diffs.filter(self._holds(self.condition, diffs.select(range(first, diffs.num_columns))))
        places = [*range(first), *(first + place for place in self.places)]
        return diffs.select(places).rename_columns([*diffs.column_names[:first], *self.result.names])

    def _holds(self, condition: Condition, rows: pa.Table) -> pa.ChunkedArray:
        """Compute the condition for each row; null where the answer is unknown."""
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
    """Build the Arrow query for `select`, or return None if Spark has to answer it or to explain what is wrong with it."""
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
    """Find the column that is spelled exactly `name`.

    For another case Spark would show the name as written in the query, or not find the column.
    """
    if [known.lower() for known in table.names].count(name.lower()) == 1 and name in table.names:
        return int(table.get_field_index(name))
    raise _NeedsSpark


def _compared(condition: Condition | None) -> Iterator[tuple[str, Constant | None]]:
    """Yield the columns of a condition, each with a constant it is compared with; None for a null test."""
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
    """Accept only types that Arrow and Spark compare alike: not floats and decimals, times, or nested types."""
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
    """Return the type in which values and constants are compared."""
    return pa.int64() if pa.types.is_integer(of) else of
