"""Python values in rows of Arrow columns."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from lakehold.subscribe.row_values import is_beyond_python, tuples

DAY_US = 86_400_000_000


def values(array: pa.Array) -> list[Any]:
    return [row[0] for row in tuples(pa.table([array], names=["v"]))]


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (6_670_384, "+20232-11-22"),
        (2_932_897, "+10000-01-01"),
        (2_932_896, dt.date(9999, 12, 31)),
        (-719_162, dt.date(1, 1, 1)),
        (-719_163, "0000-12-31"),
        (-719_528, "0000-01-01"),
        (-719_529, "-0001-12-31"),
        (-735_160, "-0043-03-15"),
        (100_000_000, "+275760-09-13"),
        (-100_000_000, "-271821-04-20"),
    ],
)
def test_only_days_beyond_python_become_text(days: int, text: dt.date | str) -> None:
    assert values(pa.array([days, None, 0], pa.int32()).cast(pa.date32())) == [text, None, dt.date(1970, 1, 1)]
    noon = days * DAY_US + DAY_US // 2
    shown = dt.datetime.combine(text, dt.time(12)) if isinstance(text, dt.date) else f"{text}T12:00:00"
    for zone in (None, "UTC"):
        assert values(pa.array([noon, None], pa.int64()).cast(pa.timestamp("us", zone))) == [shown, None]


def test_microseconds_at_the_edges_of_python_keep_their_type() -> None:
    first, last = (dt.datetime.combine(*ends) for ends in ((dt.date.min, dt.time.min), (dt.date.max, dt.time.max)))
    held = pa.array([first, last], pa.timestamp("us"))
    assert values(held) == [first, last]
    beyond = pa.array([held[0].value - 1, held[1].value + 1], pa.int64()).cast(pa.timestamp("us"))
    assert values(beyond) == ["0000-12-31T23:59:59.999999", "+10000-01-01T00:00:00"]


@given(st.lists(st.dates() | st.none()))
def test_dates_that_python_holds_stay_dates(dates: list[dt.date | None]) -> None:
    assert values(pa.array(dates, pa.date32())) == dates


def test_nested_values_and_slices_are_converted() -> None:
    day = pa.struct([("d", pa.date32()), ("l", pa.list_(pa.date32())), ("m", pa.map_(pa.date32(), pa.string()))])
    early = dt.date(2024, 1, 1)
    rows = [
        None,
        {"d": None, "l": None, "m": None},
        {"d": early, "l": [], "m": []},
        {"d": early, "l": [None, early], "m": [(early, "x"), (dt.date.max, None)]},
    ]
    expected = [
        None,
        Row(d=None, l=None, m=None),
        Row(d=early, l=[], m={}),
        Row(d=early, l=[None, early], m={early: "x", dt.date.max: None}),
    ]
    array = pa.array(rows, day)
    for start in range(5):
        assert values(array[start:]) == expected[start:]
    assert values(pa.chunked_array([array, array[:0], array[2:]])) == expected + expected[2:]
    beyond = pa.array([[[2_932_897]], None], pa.list_(pa.list_(pa.int32()))).cast(pa.list_(pa.list_(pa.date32())))
    assert values(beyond) == [[["+10000-01-01"]], None]
    assert (is_beyond_python(beyond), is_beyond_python(array), is_beyond_python(beyond[1:])) == (True, False, False)


def test_text_of_invalid_utf8_is_read() -> None:
    for kind in (pa.string(), pa.large_string()):
        binary = pa.binary() if kind == pa.string() else pa.large_binary()
        texts = pa.array([b"a\xff", None, b"b"], binary).cast(kind, safe=False)
        assert values(texts) == ["a\ufffd", None, "b"]


def test_a_map_whose_keys_are_lists_is_a_list_of_pairs() -> None:
    assert values(pa.array([[([1], "a")]], pa.map_(pa.list_(pa.int32()), pa.string()))) == [[([1], "a")]]
