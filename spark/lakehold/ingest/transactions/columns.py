"""Compute on whole columns of numbers: what the modules of whole transactions have in common. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[Any]
"""Of whole numbers."""
Flags = npt.NDArray[Any]
"""Of what is true or false."""


def numbered(texts: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, Numbers]:
    """Return distinct texts, and of each text its number among them; -1 of null."""
    whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    encoded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    return encoded.dictionary, encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)


def filled(numbers: pa.ChunkedArray) -> Numbers:
    """Return numbers with 0 for null."""
    found: Numbers = numbers.fill_null(0).to_numpy()
    return found


def are_true(flags: pa.Array | pa.ChunkedArray) -> Flags:
    """Return flags with false for null."""
    found: Flags = np.asarray(flags.fill_null(False))
    return found


def differ(*columns: npt.NDArray[Any]) -> Flags:
    """Mark rows that differ from the one before in some column; the first does."""
    found = np.zeros(len(columns[0]), bool)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def ranks(*columns: Numbers) -> Numbers:
    """Rank rows from 0, compared by the columns from the left; equal ones have one rank."""
    order = np.lexsort(columns[::-1])
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(differ(*(column[order] for column in columns))) - 1
    return found


def highest_before(groups: Numbers, values: Numbers) -> Numbers:
    """Find for each row the highest value (0 or more) of earlier rows of its group; -1 where there is none.

    Args:
        groups: Rows of one group stand together.
        values: Below the number of rows, or equal to it.
    """
    lifted = (np.cumsum(differ(groups)) - 1) * (len(groups) + 2)
    highest = np.zeros(len(groups), np.int64)
    highest[1:] = np.maximum.accumulate(lifted + values + 1)[:-1]
    found: Numbers = np.maximum(highest - lifted, 0) - 1
    return found


def compared(columns: Numbers, with_: Sequence[int]) -> Numbers:
    """Compare rows with some numbers, from the left: below 0, 0 or above 0 where a row is lower, equal or higher.

    Args:
        columns: At least as many columns as there are numbers.
        with_: The numbers.
    """
    found = np.zeros(columns.shape[1], np.int64)
    for column, number in reversed([*zip(columns, with_, strict=False)]):
        found = np.where(column == number, found, np.where(column < number, -1, 1))
    return found


def last_highest(columns: Sequence[Numbers] | Numbers) -> int:
    """Find the last of the rows that are highest, compared by the columns from the left; there are some."""
    rows = np.arange(len(columns[0]))
    for column in columns:
        values = column[rows]
        rows = rows[values == values.max()]
    return int(rows[-1])
