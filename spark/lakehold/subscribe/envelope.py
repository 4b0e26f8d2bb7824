"""Applies the envelopes of SUBSCRIBE, UPSERT and DEBEZIUM: converts the diffs of a timestamp to one row for each key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakehold.subscribe.row_order import Positions, begins_run, order_keys

# States by what a group has: neither a row before nor one after, a row before, a row after, both.
_UPSERT_STATES = pa.array(["key_violation", "delete", "upsert", "upsert"])
_DEBEZIUM_STATES = pa.array(["key_violation", "delete", "insert", "upsert"])

_ROWS_THAT_VIOLATE = 3
"""A group with this many rows is a violation, whatever the rows are."""


def upsert(chunks: Iterable[pa.Table], key: Sequence[int]) -> Iterator[pa.Table]:
    """Convert diffs to `ENVELOPE UPSERT`: the value of each key from a timestamp onward.

    Args:
        chunks: Consolidated diffs (`mz_timestamp, mz_diff, columns`), sorted by timestamp and key, also across tables;
            the rows of one timestamp and key may be split between tables.
        key: Zero-based positions of the key among the row's columns, in the order of KEY.

    Returns:
        Tables of `mz_timestamp, mz_state, key, other columns`, one row for each timestamp and key, in the order of the diffs.
        States: `upsert`, `delete`, `key_violation`; the values of the last two are null. A key is violated at a timestamp if
        its diffs are anything but one row added, one removed, or one of each: then several rows have or had the key.
    """
    for groups in _groups(chunks, key):
        values = [(field, groups.after_values(i)) for i, field in groups.value_fields()]
        yield groups.table(_UPSERT_STATES, values)


def debezium(chunks: Iterable[pa.Table], key: Sequence[int]) -> Iterator[pa.Table]:
    """Convert diffs to `ENVELOPE DEBEZIUM`: the value of each key before a timestamp and from it onward.

    Args:
        chunks: As for `upsert`.
        key: As for `upsert`.

    Returns:
        Tables of `mz_timestamp, mz_state, key`, then `before_*` of all other columns, then `after_*` of all other columns.
        States: `insert`, `upsert`, `delete`, and `key_violation` as for `upsert`, whose `before_*` and `after_*` are null.
    """
    for groups in _groups(chunks, key):
        fields = list(groups.value_fields())
        before = [(field.with_name(f"before_{field.name}"), groups.before_values(i)) for i, field in fields]
        after = [(field.with_name(f"after_{field.name}"), groups.after_values(i)) for i, field in fields]
        yield groups.table(_DEBEZIUM_STATES, before + after)


@dataclass(frozen=True)
class _Groups:
    """Diffs, with the positions of the groups that share a timestamp and a key.

    Attributes:
        rows: The diffs.
        key: Positions of the key among all columns.
        first: Position of each group's first row.
        before: Position of the row that each group removes; null if none, or for a violation.
        after: Position of the row that each group adds; null if none, or for a violation.
    """

    rows: pa.Table
    key: tuple[int, ...]
    first: pa.Array
    before: pa.Array
    after: pa.Array

    def value_fields(self) -> Iterator[tuple[int, pa.Field]]:
        """Yield position and field of each column outside the key."""
        return ((i, field) for i, field in enumerate(self.rows.schema) if i > 1 and i not in self.key)

    def before_values(self, column: int) -> pa.ChunkedArray:
        return _at(self.rows.column(column), self.before)

    def after_values(self, column: int) -> pa.ChunkedArray:
        return _at(self.rows.column(column), self.after)

    def table(self, states: pa.Array, values: Sequence[tuple[pa.Field, pa.ChunkedArray]]) -> pa.Table:
        """Build a table with one row per group: timestamp, state, key and `values`."""
        has_before, has_after = (rows.is_valid().to_numpy(zero_copy_only=False) for rows in (self.before, self.after))
        columns = [
            (self.rows.field(0), _at(self.rows.column(0), self.first)),
            (pa.field("mz_state", pa.string()), states.take(pa.array(has_before + 2 * has_after))),
            *((self.rows.field(i), _at(self.rows.column(i), self.first)) for i in self.key),
            *values,
        ]
        return pa.Table.from_arrays([c for _, c in columns], schema=pa.schema([field for field, _ in columns]))


def _at(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    """Take the values at ascending positions, null for a null position. Taking all positions, or none, costs nothing."""
    if rows.null_count == len(rows):
        return pa.chunked_array([pa.nulls(len(rows), column.type)])
    if not rows.null_count and len(rows) == len(column):
        return column
    return column.take(rows)


def _groups(chunks: Iterable[pa.Table], key: Sequence[int]) -> Iterator[_Groups]:
    """Group each chunk by timestamp and key. The last group waits for the next chunk, which may continue it."""
    columns = tuple(2 + i for i in key)
    waiting: pa.Table | None = None
    for chunk in chunks:
        rows = chunk if waiting is None else pa.concat_tables([waiting, chunk])
        if not rows.num_rows:
            continue
        keys = [image for i in (0, *columns) for image in order_keys(rows.column(i))]
        first = np.flatnonzero(begins_run(keys, rows.num_rows))
        last = int(first[-1])
        if last:
            yield _classified(rows.slice(0, last), columns, first[:-1])
        waiting = _copy(rows.slice(last, _ROWS_THAT_VIOLATE))
    if waiting is not None:
        yield _classified(waiting, columns, np.zeros(1, np.int64))


def _copy(rows: pa.Table) -> pa.Table:
    """Copy rows out of a slice, so that the slice's chunk can be freed."""
    return rows.take(pa.array(range(rows.num_rows), pa.int64()))


def _classified(rows: pa.Table, key: tuple[int, ...], first: Positions) -> _Groups:
    """Map each group to one of four cases: row added, row removed, row replaced, or anything else, which is a `key_violation`."""
    diffs = rows.column(1).to_numpy()
    sizes = np.diff(first, append=rows.num_rows)
    one, other = diffs[first], diffs[np.minimum(first + 1, rows.num_rows - 1)]
    single = sizes == 1
    replaced = (sizes == 2) & (np.abs(one) == 1) & (one == -other)  # noqa: PLR2004 - a row before, a row after
    before = pa.array(np.where(one == -1, first, first + 1), mask=~(replaced | (single & (one == -1))))
    after = pa.array(np.where(one == 1, first, first + 1), mask=~(replaced | (single & (one == 1))))
    return _Groups(rows, key, pa.array(first), before, after)
