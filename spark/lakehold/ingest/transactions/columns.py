"""Computations on whole columns of numbers, shared by the modules of whole transactions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[Any]
"""An array of whole numbers."""
Flags = npt.NDArray[Any]
"""An array of booleans: it marks rows of the arrays beside it."""


def numbered(texts: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, Numbers]:
    """Return distinct texts, and the number of each text among them; -1 for null."""
    whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    encoded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    return encoded.dictionary, encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)


def filled(numbers: pa.ChunkedArray) -> Numbers:
    """Return numbers with 0 for null."""
    found: Numbers = numbers.fill_null(0).to_numpy()
    return found


def are_true(flags: pa.Array | pa.ChunkedArray) -> Flags:
    """Return flags, with false for null."""
    found: Flags = np.asarray(flags.fill_null(False))
    return found


def differ(*columns: npt.NDArray[Any]) -> Flags:
    """Mark rows that differ from the row before in some column, and the first row."""
    found = np.zeros(len(columns[0]), bool)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def ranks(*columns: Numbers) -> Numbers:
    """Rank rows from 0, compared by the columns from the left; equal rows share a rank."""
    order = np.lexsort(columns[::-1])
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(differ(*(column[order] for column in columns))) - 1
    return found


def highest_before(groups: Numbers, values: Numbers) -> Numbers:
    """Find for each row the highest value (0 or more) of earlier rows of its group; -1 if there are none.

    Args:
        groups: The group of each row; rows of a group are adjacent.
        values: At most the number of rows.
    """
    lifted = (np.cumsum(differ(groups)) - 1) * (len(groups) + 2)
    highest = np.zeros(len(groups), np.int64)
    highest[1:] = np.maximum.accumulate(lifted + values + 1)[:-1]
    found: Numbers = np.maximum(highest - lifted, 0) - 1
    return found


def compared(columns: Numbers, with_: Sequence[int]) -> Numbers:
    """Compare rows with some numbers, from the left: negative, 0 or positive for rows that are lower, equal or higher.

    Args:
        columns: A two-dimensional array, one row of it for each column; at least as many columns as numbers.
        with_: The numbers.
    """
    found = np.zeros(columns.shape[1], np.int64)
    for column, number in reversed([*zip(columns, with_, strict=False)]):
        found = np.where(column == number, found, np.where(column < number, -1, 1))
    return found


def last_highest(columns: Sequence[Numbers] | Numbers) -> int:
    """Find the last of the highest rows, compared by the columns from the left; there must be rows."""
    rows = np.arange(len(columns[0]))
    for column in columns:
        values = column[rows]
        rows = rows[values == values.max()]
    return int(rows[-1])
