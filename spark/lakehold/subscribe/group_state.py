"""The state of groups: what is kept of each group so that its aggregates follow from diffs, exactly as Spark computes them.

Kept are only numbers whose sums do not depend on the order of adding. Everything else is refused (`NotKept`), and so are sums
that Spark might find too large, depending on the order (`Inexact`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from lakehold.subscribe.incremental_plan import AggregateCall

Key = tuple[Any, ...]
DiffRow = tuple[int, Key, Sequence[Any]]
"""Diff, key and arguments of a row."""

Values = list[Any]
"""The number of a group's rows, then the value of each accumulator."""

_MAX_SUMMED_PRECISION = 28
"""Spark sums decimals with ten more digits; up to here that is at most 38, and no table is long enough to need more."""

_SIMPLE = {
    "count": "count",
    "count_if": "true",
    "min": "least",
    "bool_and": "least",
    "every": "least",
    "max": "greatest",
    "bool_or": "greatest",
    "any": "greatest",
    "some": "greatest",
}
"""The accumulators that are an aggregate's result as they are."""

_OF_CONDITIONS = frozenset({"count_if", "bool_and", "every", "bool_or", "any", "some"})
"""Aggregates of booleans. Spark casts text to a boolean for them, and a state would keep the text."""

_EXACT_DOUBLES = 2**53
_LONGS = 2**63 - 1
_EXACT = Context(prec=100, rounding=ROUND_HALF_UP)


class NotKept(Exception):
    """A signal that no exact state of the aggregates is known; its text is the reason."""


class Inexact(Exception):
    """A signal that Spark's answer depends on the order in which it adds, or is an error."""


@dataclass(frozen=True)
class Accumulator:
    """A value that is kept of each group.

    Attributes:
        kind: `count` of values, `sum`, `size` (the sum of absolute values), `least`, `greatest`, or `true` (their number).
        argument: The number of the argument.
    """

    kind: str
    argument: int

    @property
    def sql(self) -> str:
        """Return SQL that computes it from rows."""
        column = f"a{self.argument}"
        return {
            "count": f"count({column})",
            "sum": f"sum({column})",
            "long": f"sum(CAST({column} AS DECIMAL(20, 0)))",
            "size": f"sum(abs(CAST({column} AS DECIMAL(20, 0))))",
            "least": f"min({column})",
            "greatest": f"max({column})",
            "true": f"count_if({column})",
        }[self.kind]


@dataclass(frozen=True)
class GroupColumns:
    """The columns of groups: how they are kept, and how aggregates are computed from them.

    Attributes:
        keys: The types of the keys.
        arguments: The types of the arguments.
        calls: The aggregates.
        results: The types of the aggregates.
        accumulators: What is kept of each group.
    """

    keys: tuple[pa.DataType, ...]
    arguments: tuple[pa.DataType, ...]
    calls: tuple[AggregateCall, ...]
    results: tuple[pa.DataType, ...]
    accumulators: tuple[Accumulator, ...] = field(init=False)

    def __post_init__(self) -> None:
        for kind in self.keys:
            if not _is_exact(kind):
                raise NotKept(f"it groups by values of type {kind}")
        needed = (each for call in self.calls for each in _needed(call, self.arguments))
        object.__setattr__(self, "accumulators", tuple(dict.fromkeys(needed)))

    @property
    def sql(self) -> list[str]:
        """Return SQL for what is kept, to be computed from rows with the columns `k0, …` and `a0, …`."""
        return ["count(*)", *(accumulator.sql for accumulator in self.accumulators)]

    def empty(self) -> Values:
        """Return what is kept of a group without rows."""
        return [0, *(None if each.kind in {"least", "greatest"} else 0 for each in self.accumulators)]

    def of_table(self, table: pa.Table) -> Iterator[tuple[Key, Values]]:
        """Read the groups of a table with the keys, then what is kept."""
        columns = [encoded(column) for column in table.columns]
        count = len(self.keys)
        kept = [
            [_known(each, value) for value in values] for each, values in zip(self._kept, columns[count:], strict=True)
        ]
        keys = zip(*columns[:count], strict=True) if count else iter([()] * table.num_rows)
        yield from zip(keys, map(list, zip(*kept, strict=True)), strict=True)

    @property
    def _kept(self) -> list[Accumulator | None]:
        return [None, *self.accumulators]

    def results_of(self, values: Values) -> tuple[Any, ...]:
        """Compute the aggregates of a group.

        Raises:
            Inexact: Spark has to compute them.
        """
        places = {each: 1 + n for n, each in enumerate(self.accumulators)}
        return tuple(
            values[0]
            if call.argument is None
            else self._result(
                call, of, {each.kind: values[place] for each, place in places.items() if each.argument == call.argument}
            )
            for call, of in zip(self.calls, self.results, strict=True)
        )

    def _result(self, call: AggregateCall, of: pa.DataType, kept: Mapping[str, Any]) -> Any:
        """Compute an aggregate from what is kept of its argument."""
        simple = _SIMPLE.get(call.function)
        if simple is not None:
            return kept[simple]
        count = kept["count"]
        if not count:
            return None
        if "sum" in kept:
            return kept["sum"] if call.function == "sum" else _quotient(kept["sum"], count, of)
        if kept["size"] > (_LONGS if call.function == "sum" else _EXACT_DOUBLES):
            raise Inexact
        return kept["long"] if call.function == "sum" else kept["long"] / count


class GroupState:
    """The groups of a query at one time.

    Args:
        columns: Their columns.
        groups: What is kept of each, by key.
        has_one_group: Whether there is one group, which exists even without rows.
    """

    def __init__(self, columns: GroupColumns, groups: Mapping[Key, Values], *, has_one_group: bool) -> None:
        self.columns = columns
        self.groups = dict(groups)
        self._has_one_group = has_one_group
        if has_one_group:
            self.groups.setdefault((), columns.empty())

    def add(self, rows: Sequence[DiffRow]) -> tuple[dict[Key, Values | None], set[Key]]:
        """Add the diffs of one timestamp.

        Args:
            rows: Diff, key and arguments; `diff_rows` makes them.

        Returns:
            What was kept of each touched group before, None if it did not exist; and the groups that have to be read again,
            because their least or greatest value left.
        """
        before: dict[Key, Values | None] = {}
        lost: set[Key] = set()
        folds = [(1 + n, each.argument, _FOLDS[each.kind]) for n, each in enumerate(self.columns.accumulators)]
        # Rows that came are added first: what they bring may be the new least value.
        for diff, key, arguments in sorted(rows, key=lambda row: row[0] < 0):
            group = self.groups.get(key)
            if key not in before:
                before[key] = None if group is None else list(group)
            if group is None:
                group = self.groups[key] = self.columns.empty()
            group[0] += diff
            for place, argument, fold in folds:
                value = arguments[argument]
                if value is not None and not fold(group, place, diff, value):
                    lost.add(key)
        for key in before:
            if not self.groups[key][0]:
                lost.discard(key)
                if not self._has_one_group:
                    del self.groups[key]
                else:
                    self.groups[key] = self.columns.empty()
        return before, lost

    def replace(self, keys: Collection[Key], found: Mapping[Key, Values]) -> None:
        """Replace what is kept of some groups by what was read of them."""
        for key in keys:
            self.groups[key] = found[key]


def diff_rows(diffs: pa.Table, columns: GroupColumns) -> Iterator[tuple[int, list[DiffRow]]]:
    """Yield the rows of each timestamp, for `GroupState.add`.

    Args:
        diffs: Diffs sorted by timestamp, with keys and arguments.
        columns: Their columns.
    """
    counted = {each.argument for each in columns.accumulators if each.kind != "count"}
    count = len(columns.keys)
    keys = [encoded(column) for column in diffs.columns[2 : 2 + count]]
    arguments = [
        encoded(column) if place in counted else [value or None for value in column.is_valid().to_pylist()]
        for place, column in enumerate(diffs.columns[2 + count : 2 + count + len(columns.arguments)])
    ]
    rows: list[DiffRow] = list(
        zip(
            diffs.column(1).to_pylist(),
            zip(*keys, strict=True) if keys else [()] * diffs.num_rows,
            zip(*arguments, strict=True) if arguments else [()] * diffs.num_rows,
            strict=True,
        )
    )
    times = diffs.column(0).to_numpy()
    begins = [*np.flatnonzero(np.diff(times, prepend=times[:1] - 1)).tolist(), len(rows)]
    for begin, end in pairwise(begins):
        yield int(times[begin]), rows[begin:end]


def encoded(column: pa.ChunkedArray) -> list[Any]:
    """Return values that compare in Python as they do in Spark.

    Dates and times become numbers, as Python has no year 10,000. Text becomes bytes, as Spark's need not be UTF-8.
    """
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    values: list[Any] = column.to_pylist()
    return values


def decoded(values: Sequence[Any], of: pa.DataType) -> pa.Array:
    """Make a column of encoded values."""
    if pa.types.is_date32(of):
        return pa.array(values, pa.int32()).cast(of)
    if pa.types.is_timestamp(of):
        return pa.array(values, pa.int64()).cast(of)
    if pa.types.is_string(of):
        return pa.array(values, pa.binary()).view(of)
    return pa.array(values, of)


def _is_exact(of: pa.DataType) -> bool:
    """Return whether equality and order of `encoded` values are Spark's: not of floats, and not of nested values."""
    t = pa.types
    return any(
        is_of(of)
        for is_of in (t.is_boolean, t.is_integer, t.is_string, t.is_binary, t.is_date32, t.is_timestamp, t.is_decimal)
    )


def _needed(call: AggregateCall, arguments: Sequence[pa.DataType]) -> Iterator[Accumulator]:
    if call.argument is None:
        return
    of = arguments[call.argument]
    simple = _SIMPLE.get(call.function)
    fits = pa.types.is_boolean(of) if call.function in _OF_CONDITIONS else simple == "count" or _is_exact(of)
    if simple is not None and fits:
        kinds = [simple]
    elif simple is None and pa.types.is_integer(of):
        kinds = ["count", "long", "size"]
    elif simple is None and pa.types.is_decimal(of) and of.precision <= _MAX_SUMMED_PRECISION:
        kinds = ["count", "sum"]
    else:
        raise NotKept(f"{call.function} of values of type {of} has no exact state")
    yield from (Accumulator(kind, call.argument) for kind in kinds)


def _known(of: Accumulator | None, value: Any) -> Any:
    """Return a value that Spark computed; the sum of no values is 0 here."""
    if of is None or of.kind in {"least", "greatest"}:
        return value
    if of.kind in {"long", "size"}:
        return int(value or 0)
    return 0 if value is None else value


def _quotient(total: Any, count: int, of: pa.DataType) -> Decimal:
    """Divide as Spark does for avg: to the scale of the result, ties away from zero."""
    quotient = _EXACT.quantize(_EXACT.divide(Decimal(total), Decimal(count)), Decimal(1).scaleb(-of.scale))
    if len(quotient.as_tuple().digits) > of.precision:
        raise Inexact
    return quotient


def _add(group: Values, place: int, diff: int, value: Any) -> bool:
    group[place] += diff * value
    return True


def _add_decimal(group: Values, place: int, diff: int, value: Any) -> bool:
    group[place] = _EXACT.add(Decimal(group[place]), _EXACT.multiply(value, Decimal(diff)))
    return True


def _add_size(group: Values, place: int, diff: int, value: Any) -> bool:
    group[place] += diff * abs(value)
    return True


def _count(group: Values, place: int, diff: int, _value: Any) -> bool:
    group[place] += diff
    return True


def _count_true(group: Values, place: int, diff: int, value: Any) -> bool:
    group[place] += diff if value else 0
    return True


def _least(group: Values, place: int, diff: int, value: Any) -> bool:
    if diff < 0:
        return bool(group[place] != value)
    if group[place] is None or value < group[place]:
        group[place] = value
    return True


def _greatest(group: Values, place: int, diff: int, value: Any) -> bool:
    if diff < 0:
        return bool(group[place] != value)
    if group[place] is None or value > group[place]:
        group[place] = value
    return True


_FOLDS: Mapping[str, Callable[[Values, int, int, Any], bool]] = {
    "count": _count,
    "sum": _add_decimal,
    "long": _add,
    "size": _add_size,
    "least": _least,
    "greatest": _greatest,
    "true": _count_true,
}
"""How each accumulator takes a value with its diff; false if the value that left was the least or greatest one."""
