"""Consolidated diffs are the multisets of rows per timestamp, in Spark's order, for every Iceberg type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    UnknownType,
)

from lakehold.subscribe.consolidate import consolidated
from tests.iceberg_values import FLAT_VALUES, diff_table, exactly, in_chunks, order, row_order, struct_of, types, values

Row = tuple[Any, ...]


@dataclass
class Diffs:
    """Rows of (timestamp, diff, columns) of some types, the ends of their chunks, and the columns to sort by first."""

    types: list[IcebergType]
    rows: list[Row]
    cuts: list[int]
    first: list[int]


@st.composite
def diffs(draw: st.DrawFn) -> Diffs:
    of = draw(st.lists(types(), min_size=1, max_size=3))
    pool = draw(st.lists(st.tuples(*(values(kind) for kind in of)), min_size=1, max_size=4))
    entry = st.tuples(
        st.integers(1, 2), st.integers(-2, 2), st.sampled_from(pool) | st.tuples(*(values(kind) for kind in of))
    )
    rows = [(timestamp, diff, *row) for timestamp, diff, row in draw(st.lists(entry, max_size=12))]
    cuts = draw(st.lists(st.integers(0, len(rows)), max_size=3))
    return Diffs(of, rows, cuts, draw(st.lists(st.sampled_from(range(len(of))), unique=True)))


def model(of: Sequence[IcebergType], rows: Sequence[Row], first: Sequence[int]) -> list[Row]:
    """Consolidate diffs in plain Python: a dict of counts, sorted."""
    image = row_order(of)
    counts: dict[tuple[int, Row], int] = {}
    kept: dict[tuple[int, Row], Row] = {}
    for timestamp, diff, *row in rows:
        counts[timestamp, image(row)] = counts.get((timestamp, image(row)), 0) + diff
        kept.setdefault((timestamp, image(row)), tuple(row))
    remaining = [entry for entry, count in counts.items() if count]
    remaining.sort(key=lambda entry: (entry[0], [entry[1][i] for i in first], entry[1]))
    return [(timestamp, counts[timestamp, row], *kept[timestamp, row]) for timestamp, row in remaining]


LISTS_OF_NULLS = ListType(1, MapType(2, BooleanType(), 3, ListType(4, UnknownType(), False), False), False)
"""Arrow's cast of such maps to lists cuts the lists of nulls in them."""


@settings(deadline=None)
@given(diffs())
@example(Diffs([LISTS_OF_NULLS], [(1, 1, [[(False, [None, None])]])], [], []))
def test_consolidated_diffs_are_the_sorted_multiset_of_the_rows(of: Diffs) -> None:
    result = consolidated(in_chunks(diff_table(of.types, of.rows), of.cuts), of.first)
    assert exactly(result) == exactly(diff_table(of.types, model(of.types, of.rows, of.first)))


@settings(deadline=None)
@given(diffs())
def test_consolidated_diffs_stay_as_they_are(of: Diffs) -> None:
    once = consolidated(diff_table(of.types, of.rows), of.first)
    assert exactly(consolidated(once, of.first)) == exactly(once)


@pytest.mark.parametrize(
    ("of", "pool"), FLAT_VALUES, ids=lambda kind: str(kind) if isinstance(kind, IcebergType) else ""
)
def test_every_value_of_a_type_is_in_its_position(of: IcebergType, pool: list[Any]) -> None:
    rows = [(1, 1, value) for value in (*pool[::-1], None, *pool)]
    assert exactly(consolidated(diff_table([of], rows))) == exactly(diff_table([of], model([of], rows, [])))


@pytest.mark.parametrize("of", [struct_of(UnknownType()), struct_of(LongType(), LongType())], ids=str)
def test_a_null_struct_is_before_a_struct_of_nulls(of: StructType) -> None:
    rows = [(1, 1, dict.fromkeys(field.name for field in of.fields)), (1, 1, None)]
    assert exactly(consolidated(diff_table([of], rows))) == exactly(diff_table([of], rows[::-1]))


def test_lists_of_many_different_elements_are_in_order() -> None:
    kind = ListType(1, LongType(), False)
    rows = [(1, 1, [number]) for number in range(300)]
    assert exactly(consolidated(diff_table([kind], rows[::-1]))) == exactly(diff_table([kind], rows))


@pytest.mark.parametrize("bits", [0xFFF8000000000000, 0x7FF8000000000001, 0xFFFFFFFFFFFFFFFF])
def test_every_nan_is_the_same(bits: int) -> None:
    diffs = diff_table([DoubleType()], [(1, 1, math.nan), (1, -1, 0.0)])
    numbers = pa.array(np.array([0x7FF8000000000000, bits], np.uint64).view(np.float64))
    assert consolidated(diffs.set_column(2, "c", numbers)).num_rows == 0


def test_diffs_of_other_timestamps_do_not_cancel() -> None:
    rows = [(2, -1, "a"), (1, 1, "a")]
    assert exactly(consolidated(diff_table([StringType()], rows))) == exactly(diff_table([StringType()], rows[::-1]))


def test_inserted_rows_are_counted_and_the_first_of_equal_ones_is_kept() -> None:
    rows = [(1, 1, -0.0, 7), (1, 2, 0.0, 7), (1, 1, 0.0, 6)]
    expected = diff_table([DoubleType(), LongType()], [(1, 1, 0.0, 6), (1, 3, -0.0, 7)])
    assert exactly(consolidated(diff_table([DoubleType(), LongType()], rows))) == exactly(expected)


def test_maps_are_equal_in_whatever_order_they_were_written() -> None:
    kind = MapType(1, StringType(), 2, LongType(), False)
    rows = [(1, 1, [("a", 1), ("b", None)]), (1, -1, [("b", None), ("a", 1)])]
    assert consolidated(diff_table([kind], rows)).num_rows == 0


def test_rows_without_columns_are_all_equal() -> None:
    assert consolidated(diff_table([], [(1, 1), (1, 3)])).to_pylist() == [{"mz_timestamp": 1, "mz_diff": 4}]


def test_no_rows_consolidate_to_no_rows() -> None:
    none = diff_table([LongType()], [])
    assert exactly(consolidated(none)) == exactly(none)
    assert exactly(consolidated(pa.table(none.slice(0, 0)))) == exactly(none)


@settings(deadline=None)
@given(st.data())
def test_the_model_orders_nulls_first_and_nan_last(data: st.DataObject) -> None:
    value = data.draw(values(DoubleType(), nulls=False))
    assert order(DoubleType(), None) < order(DoubleType(), value) <= order(DoubleType(), float("nan"))
