"""Digests of rows: a number for each row that shows whether two rows are the same, and sums of these numbers by key. Pure.

A digest depends on the values of a row alone: not on the order or the chunks in which rows come, nor on how a column is
encoded. Values are compared as a table stores them: null differs from empty text, and 0.0 from -0.0; one NaN equals another.
`one_zero` is for tables that follow diffs, which take 0.0 and -0.0 for the same value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, np.dtype[np.uint64]]
"""Digests: numbers of 64 bits."""

BUCKETS = 1 << 16
"""The number of buckets of keys. The digest of a key begins with the number of its bucket."""

_BUCKET_SHIFT = np.uint64(48)
_WORD = 8
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_64_BITS = (1 << 64) - 1
_NULL = np.uint64(0x6A09E667F3BCC909)
_NAN = np.uint64(0x7FF8000000000000)
_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOW = np.uint64(0xFFFFFFFF)
_HIGH_SHIFT = np.uint64(32)


def _mixed(numbers: Numbers) -> Numbers:
    """Spread every bit of each number over all of its bits (SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


NULL_DIGEST = int(_mixed(np.array([_NULL]))[0])
"""The digest of a null."""


def column_digests(values: pa.Array, *, one_zero: bool = False) -> Numbers:
    """Return a digest of each value of a column; the digest of a null is `NULL_DIGEST`."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    found = _mixed(_digests(values, one_zero=one_zero))
    if values.null_count:
        found[~_are_valid(values)] = np.uint64(NULL_DIGEST)
    return found


def list_digests(items: Numbers, offsets: np.ndarray[Any, Any]) -> Numbers:
    """Return the digests of a column of lists, none of them null, from the digests of their items and where each list begins."""
    return _mixed(_in_order(items, offsets.astype(np.int64)))


def row_digests(columns: Sequence[Numbers]) -> Numbers:
    """Combine the digests of the columns of some rows into a digest of each row; the order of the columns counts."""
    total = np.zeros(len(columns[0]), np.uint64)
    for place, digests in enumerate(columns):
        total += _mixed(digests + np.uint64(int(_GOLDEN) * (place + 1) & _64_BITS))
    return _mixed(total)


def buckets_of(keys: Numbers) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the bucket of each digest of a key."""
    return (keys >> _BUCKET_SHIFT).astype(np.int64)


class BucketSums:
    """The number of rows in each bucket, and the sum of their digests.

    Sums are kept as two halves of 32 bits, so that Spark can add them up without an overflow.
    """

    def __init__(self) -> None:
        self.rows = np.zeros(BUCKETS, np.int64)
        self._low = np.zeros(BUCKETS, np.uint64)
        self._high = np.zeros(BUCKETS, np.uint64)

    def add(self, keys: Numbers, rows: Numbers) -> None:
        """Count some rows, given by the digests of their keys and of all of their columns."""
        buckets = buckets_of(keys)
        self.rows += np.bincount(buckets, minlength=BUCKETS)
        self._low += _added(buckets, rows & _LOW)
        self._high += _added(buckets, rows >> _HIGH_SHIFT)

    def to_batch(self) -> pa.RecordBatch:
        """Return the buckets that have rows, with the columns `bucket`, `rows`, `low` and `high`."""
        filled = np.flatnonzero(self.rows)
        columns = (filled, self.rows[filled], self._low[filled].astype(np.int64), self._high[filled].astype(np.int64))
        return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], ["bucket", "rows", "low", "high"])

    def add_batch(self, sums: pa.RecordBatch | pa.Table) -> None:
        """Add what `to_batch` returned for other rows of the same side."""
        buckets = sums["bucket"].to_numpy()
        self.rows[buckets] += sums["rows"].to_numpy()
        self._low[buckets] += sums["low"].to_numpy().astype(np.uint64)
        self._high[buckets] += sums["high"].to_numpy().astype(np.uint64)

    def differing(self, other: BucketSums) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the buckets in which the rows of the two sides differ."""
        return np.flatnonzero((self.rows != other.rows) | (self._sums != other._sums))

    @property
    def _sums(self) -> Numbers:
        return self._low + (self._high << _HIGH_SHIFT)


def _added(buckets: np.ndarray[Any, np.dtype[np.int64]], halves: Numbers) -> Numbers:
    """Add up halves of digests by bucket: as doubles, which are exact for up to two million rows."""
    return np.bincount(buckets, halves.astype(np.float64), BUCKETS).astype(np.uint64)


def _digests(values: pa.Array, *, one_zero: bool) -> Numbers:  # noqa: PLR0911 - one a kind of types
    """Return a number for each value that depends on the value alone; any number for a null."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return _numbers(values.cast(pa.int8()))
    if pa.types.is_integer(kind):
        return _numbers(values)
    if pa.types.is_date(kind):
        return _numbers(values.cast(pa.int32()))
    if pa.types.is_timestamp(kind):
        return _numbers(values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()))
    if pa.types.is_floating(kind):
        return _of_floats(values, one_zero=one_zero)
    if pa.types.is_decimal(kind):
        return _of_decimals(values)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_bytes(values)
    if pa.types.is_struct(kind):
        return row_digests([column_digests(field, one_zero=one_zero) for field in values.flatten()])
    if pa.types.is_map(kind):
        return _of_maps(values, one_zero=one_zero)
    if pa.types.is_list(kind):
        return _of_lists(values, one_zero=one_zero)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _of_bytes(values.cast(pa.string()))
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return _of_bytes(values.cast(pa.binary()))
    raise TypeError(f"no digest of {kind}")


def _are_valid(values: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False))


def _numbers(values: pa.Array) -> Numbers:
    filled = pc.fill_null(values, 0) if values.null_count else values
    return np.asarray(filled.to_numpy(zero_copy_only=False)).astype(np.int64).view(np.uint64)


def _of_floats(values: pa.Array, *, one_zero: bool) -> Numbers:
    filled = pc.fill_null(values, 0.0) if values.null_count else values
    numbers = np.asarray(filled.to_numpy(zero_copy_only=False)).astype(np.float64)
    if one_zero:
        numbers = numbers + 0.0  # -0.0 + 0.0 is 0.0
    bits = numbers.view(np.uint64).copy()
    bits[np.isnan(numbers)] = _NAN
    return bits


def _of_decimals(values: pa.Array) -> Numbers:
    wide = values.cast(pa.decimal128(values.type.precision, values.type.scale))
    halves = np.frombuffer(wide.buffers()[1], np.uint64)[2 * wide.offset : 2 * (wide.offset + len(wide))]
    return _mixed(halves[0::2]) + _mixed(halves[1::2] + _GOLDEN)


def _of_bytes(values: pa.Array) -> Numbers:
    """Digest texts and bytes by words of eight bytes, each with its place; zeros fill the last one, and the length counts."""
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = _offsets(values, offsets_buffer)
    starts, lengths = offsets[:-1], np.diff(offsets)
    data = np.zeros(int(offsets[-1] - offsets[0]) + _WORD, np.uint8)
    if data_buffer is not None:
        data[:-_WORD] = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    counts = (lengths + _WORD - 1) // _WORD
    ends = np.cumsum(counts)
    places = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
    at = np.repeat(starts - offsets[0], counts) + places * _WORD
    words = np.ndarray((len(data) - _WORD + 1,), "<u8", data, strides=(1,))[at]
    beyond = _WORD - np.minimum(np.repeat(lengths, counts) - places * _WORD, _WORD)
    words &= _ONES >> (beyond * _WORD).astype(np.uint64)
    return _summed(_mixed(words + _GOLDEN * (places + 1).astype(np.uint64)), ends, counts) + lengths.astype(np.uint64)


def _of_lists(values: pa.Array, *, one_zero: bool) -> Numbers:
    offsets = _offsets(values, values.buffers()[1])
    items = column_digests(values.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])), one_zero=one_zero)
    return _in_order(items, offsets - offsets[0])


def _of_maps(values: pa.Array, *, one_zero: bool) -> Numbers:
    """Digest maps, whose entries have no order."""
    offsets = _offsets(values, values.buffers()[1])
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    parts = (part.slice(first, count) for part in (values.keys, values.items))
    entries = row_digests([column_digests(part, one_zero=one_zero) for part in parts])
    counts = np.diff(offsets)
    return _summed(entries, np.cumsum(counts), counts) + counts.astype(np.uint64)


def _in_order(items: Numbers, offsets: np.ndarray[Any, np.dtype[np.int64]]) -> Numbers:
    counts = np.diff(offsets)
    places = np.arange(len(items)) - np.repeat(offsets[:-1], counts)
    spread = _mixed(items + _GOLDEN * (places + 1).astype(np.uint64))
    return _summed(spread, offsets[1:], counts) + counts.astype(np.uint64)


def _offsets(values: pa.Array, buffer: pa.Buffer) -> np.ndarray[Any, np.dtype[np.int64]]:
    if not len(values):
        return np.zeros(1, np.int64)
    found = np.frombuffer(buffer, np.int32)[values.offset : values.offset + len(values) + 1]
    return found.astype(np.int64)


def _summed(items: Numbers, ends: Any, counts: Any) -> Numbers:
    """Add up the items of each value: `counts` items, which end before `ends`."""
    totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(items, dtype=np.uint64)])
    return np.asarray(totals[ends] - totals[ends - counts])
