"""Spark's order and equality of values, mapped to Arrow columns that Arrow can sort and compare.

The order is ascending, nulls first. Strings compare by their UTF-8 bytes, binary by unsigned bytes. NaN equals itself and is
above every number; -0.0 equals 0.0. Structs compare field by field; arrays element by element, then the shorter one comes first.
Spark has no order for maps: here a map is the sorted array of its entries, so equal maps are equal however they were written.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakehold.subscribe.project import as_list_of_entries, offsets

Positions = npt.NDArray[np.int64]


def order_keys(column: pa.ChunkedArray, *, exact: bool = False) -> list[pa.Array]:
    """Convert `column` to flat columns that together sort and compare as it does, within this column only.

    The column has to fit one Arrow array: less than 2 GiB of text.

    Args:
        column: The column.
        exact: Whether only identical values compare equal: not -0.0 and 0.0, nor maps with their entries in another order.
    """
    return _keys(column.combine_chunks(), exact=exact)


def has_inexact(kind: pa.DataType) -> bool:
    """Return whether values of a type can be equal without being identical."""
    if pa.types.is_floating(kind) or pa.types.is_map(kind):
        return True
    return any(has_inexact(kind.field(place).type) for place in range(kind.num_fields))


def _keys(array: pa.Array, *, exact: bool) -> list[pa.Array]:
    kind = array.type
    if pa.types.is_null(kind):
        return []
    if pa.types.is_floating(kind):
        return [_float_image(array, exact=exact)]
    if pa.types.is_struct(kind):
        fields = [key for child in array.flatten() for key in _keys(child, exact=exact)]
        return [array.is_valid(), *fields]  # a null struct is before a struct of nulls
    if pa.types.is_map(kind):
        return [_list_image(as_list_of_entries(array), sort_elements=not exact, exact=exact)]
    if pa.types.is_list(kind):
        return [_list_image(array, sort_elements=False, exact=exact)]
    return [array]


def _float_image(array: pa.Array, *, exact: bool) -> pa.Array:
    """Map floats to integers in the same order: a double's bits grow with it, and shrink for negative values."""
    values = pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    zeros = values if exact else values + 0.0  # -0.0 + 0.0 is 0.0
    bits = np.where(np.isnan(values), np.nan, zeros).view(np.int64)  # one NaN
    image = np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)
    return pa.array(image, mask=array.is_null().to_numpy(zero_copy_only=False))


def _list_image(lists: pa.Array, *, sort_elements: bool, exact: bool) -> pa.Array:
    """Map lists to bytes in the same order: the ranks of the elements, big-endian, concatenated."""
    elements = lists.flatten()
    ranks = dense_ranks(_keys(elements, exact=exact), len(elements))
    begins = offsets(lists).to_numpy().astype(np.int64)
    if sort_elements:
        list_of_element = np.repeat(np.arange(len(lists)), np.diff(begins))
        ranks = ranks[np.lexsort((ranks, list_of_element))]
    data = ranks.astype(">u4")
    buffers = [lists.is_valid().buffers()[1], pa.py_buffer(begins * data.itemsize), pa.py_buffer(data.tobytes())]
    return pa.Array.from_buffers(pa.large_binary(), len(lists), buffers)


def dense_ranks(keys: Sequence[pa.Array], length: int) -> Positions:
    """Rank each row among the distinct rows, from zero."""
    ranks = np.zeros(length, np.int64)
    if keys:
        rows = sorted_positions(keys)
        ranks[rows] = np.cumsum(begins_run([key.take(rows) for key in keys], length)) - 1
    return ranks


def sorted_positions(keys: Sequence[pa.Array]) -> pa.Array:
    """Return the positions of the rows in ascending order (uint64); equal rows keep their order."""
    table = pa.Table.from_arrays(list(keys), names=[str(i) for i in range(len(keys))])
    return pc.sort_indices(table, sort_keys=[(name, "ascending", "at_start") for name in table.column_names])


def begins_run(keys: Sequence[pa.Array], length: int) -> npt.NDArray[np.bool_]:
    """Mark each of `length` rows that differs from the previous row; the first row is always marked."""
    begins = np.zeros(length, np.bool_)
    begins[:1] = True
    for key in keys:
        begins[1:] |= _differs_from_previous(key).to_numpy(zero_copy_only=False)
    return begins


def _differs_from_previous(key: pa.Array) -> pa.Array:
    differs = pc.not_equal(key[1:], key[:-1])
    if not key.null_count:
        return differs
    there = key.is_valid()
    return pc.coalesce(differs, pc.xor(there[1:], there[:-1]))
