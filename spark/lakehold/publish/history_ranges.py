"""Turns changes of keyed rows into ranges of validity: from when to when each row had its values.

Input are rows of `ENVELOPE DEBEZIUM` (`mz_timestamp, mz_state, key, before_*, after_*`), of one timestamp or several.
A table of ranges then needs to know nothing but the current range of each key: see `RangeState`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehold.subscribe.row_order import Positions, dense_ranks, order_keys
from lakehold.subscribe.row_values import tuples

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"

RANGE_COLUMNS = pa.schema(
    [(VALID_FROM, pa.timestamp("us", "UTC")), (VALID_TO, pa.timestamp("us", "UTC")), (IS_CURRENT, pa.bool_())]
)
"""The columns after those of the rows.

A range begins at `valid_from` and ends before `valid_to`, which is null while it goes on.
"""

_BEFORE_COLUMNS = 2
"""The columns before the key: `mz_timestamp` and `mz_state`."""

Flags = npt.NDArray[np.bool_]


class RangeState(StrEnum):
    """The meaning of a range for a table that has earlier ones."""

    INSERT = "insert"
    """The range of a new row: the table has no current range of its key."""

    UPDATE = "update"
    """New values and a new end of the key's current range, whose beginning stays. A table without one gets this range."""

    END = "end"
    """The end of the key's current range, which keeps its beginning and its values. A table without one gets nothing."""

    NEW = "new"
    """One more range."""


class SeveralRows(Exception):
    """Several rows had a key at one time.

    Attributes:
        key: The values of the key.
        timestamp_ms: The first timestamp at which they had it.
    """

    def __init__(self, key: Sequence[Any], timestamp_ms: int) -> None:
        super().__init__()
        self.key = tuple(key)
        self.timestamp_ms = timestamp_ms


@dataclass(frozen=True)
class Ranges:
    """Ranges, and the state of each.

    Attributes:
        rows: The ranges: the key, the other columns, and `RANGE_COLUMNS`.
        states: A `RangeState` for each.
    """

    rows: pa.Table
    states: pa.Array


def ranges(changes: pa.Table, key_columns: int, tracked: Collection[str]) -> Ranges:
    """Turn `changes` into ranges.

    Args:
        changes: Rows of ENVELOPE DEBEZIUM; one for each timestamp and key.
        key_columns: Number of the key's columns.
        tracked: The columns whose changes begin a new range; changes of others alone update the range that goes on.

    Raises:
        SeveralRows: Several rows had a key at one time.
    """
    columns = range(_BEFORE_COLUMNS, _BEFORE_COLUMNS + key_columns)
    images = [image for i in columns for image in order_keys(changes.column(i))]
    keys = dense_ranks(images, changes.num_rows)
    order = np.lexsort((changes.column(0).to_numpy(), keys))
    return _Changes(changes.take(pa.array(order)), keys[order], key_columns, frozenset(tracked)).ranges()


def value_names(changes: pa.Schema, key_columns: int) -> list[str]:
    """Return the names of the columns outside the key, of rows of ENVELOPE DEBEZIUM."""
    first_after = (_BEFORE_COLUMNS + key_columns + len(changes)) // 2
    return [name.removeprefix("after_") for name in changes.names[first_after:]]


@dataclass(frozen=True)
class _Changes:
    """Changes, sorted by key and timestamp; `keys` has a number for each key."""

    rows: pa.Table
    keys: Positions
    key_columns: int
    tracked: frozenset[str]

    def ranges(self) -> Ranges:
        keys, count = self.keys, self.rows.num_rows
        times = self.rows.column(0).to_numpy()
        is_insert, is_delete, is_update = (self._has_state(state) for state in ("insert", "delete", "upsert"))
        is_first = np.diff(keys, prepend=-1) != 0
        self._refuse_violations(is_first, is_insert, is_delete, is_update)
        begins = is_insert | (is_update & self._is_tracked_change())
        # A range has the values of its last change, and ends where the next one of its key begins, or the row is deleted.
        first = np.flatnonzero(begins | (is_first & is_update))
        bounds = np.append(np.flatnonzero(begins | is_delete | is_first), count)
        ends = bounds[np.searchsorted(bounds, first, side="right")]
        at_end = np.minimum(ends, count - 1)
        goes_on = (ends == count) | (keys[at_end] != keys[first])
        states = np.where(is_first[first] & ~begins[first], RangeState.UPDATE, RangeState.NEW)
        states = np.where(is_first[first] & is_insert[first], RangeState.INSERT, states)
        made = self._table("after", ends - 1, times[first], pa.array(times[at_end], mask=goes_on))
        # What was current before the first change of its key, and ends with it, keeps its values.
        ended = np.flatnonzero(is_first & (is_delete | (is_update & begins)))
        ending = self._table("before", ended, times[ended], pa.array(times[ended]))
        all_states = [*map(str, states), *[str(RangeState.END)] * len(ended)]
        return Ranges(pa.concat_tables([made, ending]), pa.array(all_states, pa.string()))

    def _has_state(self, state: str) -> Flags:
        return np.asarray(pc.equal(self.rows.column(1), state).to_numpy())

    def _values(self, side: str) -> list[pa.ChunkedArray]:
        first = _BEFORE_COLUMNS + self.key_columns
        width = (self.rows.num_columns - first) // 2
        begin = first if side == "before" else first + width
        return list(self.rows.columns[begin : begin + width])

    def _is_tracked_change(self) -> Flags:
        """Return where a tracked column has other values before and after, by the equality of diffs."""
        count = self.rows.num_rows
        differs = np.zeros(count, np.bool_)
        names = value_names(self.rows.schema, self.key_columns)
        for name, before, after in zip(names, self._values("before"), self._values("after"), strict=True):
            if name in self.tracked:
                both = pa.chunked_array([*before.chunks, *after.chunks], before.type)
                ranks = dense_ranks(order_keys(both), len(both))
                differs |= ranks[:count] != ranks[count:]
        return differs

    def _refuse_violations(self, is_first: Flags, is_insert: Flags, is_delete: Flags, is_update: Flags) -> None:
        # Another row of a key that exists looks like an insert.
        deleted_before = np.append(False, is_delete[:-1])
        violated = ~(is_insert | is_delete | is_update) | (~is_first & (is_insert != deleted_before))
        if violated.any():
            place = int(np.argmax(violated))
            columns = range(_BEFORE_COLUMNS, _BEFORE_COLUMNS + self.key_columns)
            (key,) = tuples(self.rows.select(columns).slice(place, 1))
            raise SeveralRows(key, self.rows.column(0)[place].as_py())

    def _table(self, side: str, places: Positions, valid_from: Positions, valid_to: pa.Array) -> pa.Table:
        """Make ranges of the rows at `places`; times are epoch milliseconds."""
        key = self.rows.select(range(_BEFORE_COLUMNS, _BEFORE_COLUMNS + self.key_columns))
        names = [*key.column_names, *value_names(self.rows.schema, self.key_columns)]
        taken = pa.array(places)
        values = [column.take(taken) for column in chain(key.columns, self._values(side))]
        times = [
            pa.array(time).cast(pa.timestamp("ms", "UTC")).cast(RANGE_COLUMNS.field(0).type)
            for time in (valid_from, valid_to)
        ]
        return pa.table([*values, *times, pc.is_null(valid_to)], names=[*names, *RANGE_COLUMNS.names])
