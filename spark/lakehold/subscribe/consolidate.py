"""Consolidation of diffs: afterwards each row has at most one diff per timestamp, and no diff is zero.

A diff is how many copies of a row a table gained (positive) or lost (negative) at a timestamp. A row that was removed from one
file and written to another unchanged has a +1 and a -1, which cancel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakehold.subscribe.row_order import begins_run, order_keys, sorted_positions


def consolidated(diffs: pa.Table, first: Sequence[int] = (), *, exact: bool = False) -> pa.Table:
    """Sum the diffs of equal rows per timestamp, and sort the result.

    Args:
        diffs: `mz_timestamp` (int64, ms), `mz_diff` (int64), then the row's columns; by position, names may repeat. Less than
            2 GiB of text or bytes in each column.
        first: Zero-based positions of the row's columns by which each timestamp's rows are sorted first (a key).
        exact: Whether only identical rows are summed: a query may tell apart rows that are equal, as by `CAST(f AS STRING)`.

    Returns:
        The same columns, sorted by timestamp, the columns `first`, then all columns; `lakehold.subscribe.row_order` defines
        equality and order. Of rows that are equal but not identical (-0.0 and 0.0) the first is kept.
    """
    row = range(diffs.num_columns - 2)
    by = [0, *(2 + i for i in first), *(2 + i for i in row if i not in first)]
    keys = [key for i in by for key in order_keys(diffs.column(i), exact=exact)]
    positions = sorted_positions(keys)
    begins = np.flatnonzero(begins_run([key.take(positions) for key in keys], diffs.num_rows))
    counts = diffs.column(1).take(positions).to_numpy()
    sums = np.add.reduceat(counts, begins) if len(begins) else counts
    remain = sums != 0
    result = diffs.take(positions.take(pa.array(begins[remain])))
    return result.set_column(1, diffs.field(1), pa.array(sums[remain], pa.int64()))


def merged(chunks: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Sum the diffs of equal adjacent rows of a timestamp, also across tables; the order stays, and so would sums of zero.

    It is for the rows of a table or result at one time: their diffs are all positive, so no sum is zero.

    Args:
        chunks: Diffs as for `consolidated`, in which equal rows are next to each other.
    """
    waiting: pa.Table | None = None
    for chunk in chunks:
        rows = chunk if waiting is None else pa.concat_tables([waiting, chunk])
        if not rows.num_rows:
            continue
        keys = [key for i in range(rows.num_columns) if i != 1 for key in order_keys(rows.column(i))]
        begins = np.flatnonzero(begins_run(keys, rows.num_rows))
        sums = np.add.reduceat(rows.column(1).to_numpy(), begins)
        if len(begins) < rows.num_rows:
            rows = rows.take(pa.array(begins)).set_column(1, rows.field(1), pa.array(sums, pa.int64()))
        waiting = rows.slice(rows.num_rows - 1).combine_chunks()
        if rows.num_rows > 1:
            yield rows.slice(0, rows.num_rows - 1)
    if waiting is not None:
        yield waiting
