"""Digests of rows: equal for equal rows in any order, chunks and encoding, and different for any other value."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehold.verify.digest import NULL_DIGEST, BucketSums, column_digests, row_digests

_TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.decimal128(38, 2): st.decimals(-(10**30), 10**30, places=2),
    pa.string(): st.text(max_size=40),
    pa.binary(): st.binary(max_size=40),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.list_(pa.int32()): st.lists(st.none() | st.integers(-5, 5), max_size=4),
    pa.list_(pa.string()): st.lists(st.none() | st.text(max_size=10), max_size=4),
    pa.struct([("a", pa.int32()), ("b", pa.string())]): st.fixed_dictionaries(
        {"a": st.none() | st.integers(0, 3), "b": st.none() | st.text(max_size=2)}
    ),
}


@pytest.mark.parametrize("kind", _TYPES, ids=str)
@given(data=st.data())
def test_values_have_one_digest_exactly_if_they_are_the_same(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | _TYPES[kind], min_size=1, max_size=30))
    array = pa.array(values, kind)
    digests = column_digests(array)
    cut = data.draw(st.integers(0, len(values)))
    chunks = [column_digests(array.slice(0, cut)), column_digests(array.slice(cut))]
    assert np.concatenate(chunks).tolist() == digests.tolist()
    stored = array.to_pylist()
    shown = [repr(value) for value in stored]
    assert len(set(digests.tolist())) == len(set(shown)), "0.0 and -0.0 differ, as the table stores them"
    assert [digest == NULL_DIGEST for digest in digests] == [value is None for value in stored]


def test_nan_is_one_value_and_a_null_none_of_the_empty_ones() -> None:
    other_nan = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    assert len({*column_digests(pa.array(other_nan)).tolist(), *column_digests(pa.array([float("nan")])).tolist()}) == 1
    padded = column_digests(pa.array([b"", b"\0", b"\0\0", b"a", b"a\0", b"\0" * 8, b"\0" * 9])).tolist()
    assert len({*padded}) == len(padded), "zeros at the end count"
    for kind in (pa.string(), pa.binary(), pa.list_(pa.int32())):
        empty, null = column_digests(pa.array([[] if pa.types.is_list(kind) else b"", None], kind)).tolist()
        assert empty != null == NULL_DIGEST


def test_the_digests_of_what_follows_diffs_are_the_same_for_both_zeros_wherever_they_are() -> None:
    pairs = [
        (pa.array([0.0, -0.0], kind) if not nested else pa.array(nested, kind))
        for kind, nested in [
            (pa.float32(), None),
            (pa.float64(), None),
            (pa.list_(pa.float64()), [[1.0, 0.0], [1.0, -0.0]]),
            (pa.map_(pa.string(), pa.float64()), [{"k": 0.0}, {"k": -0.0}]),
            (pa.struct([("a", pa.list_(pa.float32()))]), [{"a": [0.0]}, {"a": [-0.0]}]),
        ]
    ]
    for pair in pairs:
        assert len({*column_digests(pair).tolist()}) == 2, pair.type
        assert len({*column_digests(pair, one_zero=True).tolist()}) == 1, pair.type


def test_encodings_of_a_type_have_one_digest() -> None:
    texts = ["", "a", "12345678", "123456789", None, "naïve"]
    digests = {tuple(column_digests(pa.array(texts, kind)).tolist()) for kind in (pa.string(), pa.large_string())}
    assert len(digests) == 1
    whole = {tuple(column_digests(pa.array([-1, None, 5], kind)).tolist()) for kind in (pa.int32(), pa.int64())}
    assert len(whole) == 1
    entries = [[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 2), ("b", 1)]]
    one, same, other = column_digests(pa.array(entries, pa.map_(pa.string(), pa.int32()))).tolist()
    assert one == same != other


_ROWS = st.lists(st.tuples(st.integers(0, 50), st.none() | st.text(max_size=3)), max_size=60)


def _sums(rows: list[tuple[int, str | None]], cuts: list[int]) -> BucketSums:
    total = BucketSums()
    for first, end in pairwise([0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]):
        part = rows[first:end]
        columns = [
            column_digests(pa.array([row[0] for row in part], pa.int64())),
            column_digests(pa.array([row[1] for row in part], pa.string())),
        ]
        one = BucketSums()
        one.add(row_digests(columns[:1]), row_digests(columns))
        total.add_batch(one.to_batch())
    return total


@given(data=st.data(), rows=_ROWS)
def test_sums_are_equal_exactly_if_both_sides_have_the_same_rows_equally_often(
    data: st.DataObject, rows: list[tuple[int, str | None]]
) -> None:
    cuts = st.lists(st.integers(0, 60), max_size=4)
    shuffled = data.draw(st.permutations(rows))
    ours = _sums(rows, data.draw(cuts))
    assert not len(ours.differing(_sums(shuffled, data.draw(cuts))))
    assert ours.rows.sum() == len(rows)
    others = data.draw(_ROWS)
    assert (len(ours.differing(_sums(others, []))) == 0) == (sorted(rows, key=repr) == sorted(others, key=repr))


def test_many_rows_of_one_bucket_add_up() -> None:
    keys = np.full(100_000, 7, np.uint64)
    rows = np.full(100_000, (1 << 64) - 1, np.uint64)
    ours, theirs = BucketSums(), BucketSums()
    ours.add(keys, rows)
    for start in range(0, 100_000, 30_000):
        theirs.add(keys[start : start + 30_000], rows[start : start + 30_000])
    assert not len(ours.differing(theirs))
    theirs.add(keys[:1], rows[:1])
    assert ours.differing(theirs).tolist() == [0]
    assert ours.to_batch()["rows"].to_pylist() == [100_000]


def test_a_column_of_no_rows_has_no_digests() -> None:
    for kind in _TYPES:
        assert not len(column_digests(pa.array([], kind)))
    assert column_digests(pa.array([Decimal("1.10")], pa.decimal128(4, 2))).tolist() == (
        column_digests(pa.array([Decimal("1.1")], pa.decimal128(12, 2))).tolist()
    )
