"""Layout of times: the positions of marks, the labels under them, and the columns that replace many marks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehold.overview.drawing import TICKS_MOST, Shape, draw, draw_strip
from lakehold.overview.picture_layout import Axis, axis_around, bins, labels, recent_axis
from lakehold.overview.words import ago, count, duration
from tests import overviews
from tests.overviews import DAY_MS, HOUR_MS, MINUTE_MS, NOW_MS

TIMES = st.lists(st.integers(0, 4_000_000_000_000), min_size=1, max_size=200).map(sorted)


@given(TIMES, st.integers(0, 4_000_000_000_000))
def test_all_marks_are_on_the_axis_in_their_order(times: list[int], now_ms: int) -> None:
    axis = axis_around(times, now_ms)
    places = [axis.place(ms) for ms in times]
    assert all(axis.shows(ms) for ms in times)
    assert places == sorted(places)
    assert 0 < places[0] <= places[-1] < 100


@given(TIMES, st.integers(1, 100))
def test_columns_count_every_time_once(times: list[int], most: int) -> None:
    found = bins(times, axis_around(times, times[-1]), most)
    assert sum(column.count for column in found) == len(times)
    assert len(found) <= most
    assert max(column.height for column in found) == 1
    for before, column in pairwise(found):
        assert before.span.start < column.span.start
        assert before.last_ms < column.first_ms


@given(TIMES, st.integers(0, 4_000_000_000_000))
def test_labels_are_few_and_apart(times: list[int], now_ms: int) -> None:
    found = labels(axis_around(times, now_ms), now_ms)
    places = [label.place for label in found]
    assert len(found) <= 8
    assert all(after - before > 8 for before, after in pairwise(places))


def test_an_axis_reaches_to_now_only_if_that_leaves_the_history_legible() -> None:
    recent = axis_around([NOW_MS - HOUR_MS, NOW_MS - MINUTE_MS], NOW_MS)
    assert recent.shows(NOW_MS)
    stale = axis_around([NOW_MS - 9 * DAY_MS, NOW_MS - 8 * DAY_MS], NOW_MS)
    assert not stale.shows(NOW_MS)
    assert stale.place(NOW_MS) == 100


def test_a_single_time_has_an_axis() -> None:
    axis = axis_around([NOW_MS], NOW_MS)
    assert axis.place(NOW_MS) == pytest.approx(50)
    assert [label.text for label in labels(axis, NOW_MS) if label.is_now] == ["now"]


@pytest.mark.parametrize(
    ("long_ms", "written"),
    [
        (20_000, ["09:59:40", "09:59:45", "09:59:50", "09:59:55"]),
        (6 * HOUR_MS, ["04:00", "05:00", "06:00", "07:00", "08:00", "09:00"]),
        (30 * HOUR_MS, ["06:00", "12:00", "18:00", "22 Nov", "06:00"]),
        (12 * DAY_MS, ["11 Nov", "13 Nov", "15 Nov", "17 Nov", "19 Nov", "21 Nov"]),
    ],
)
def test_times_are_written_as_round_as_the_span_allows(long_ms: int, written: list[str]) -> None:
    found = labels(Axis(NOW_MS - long_ms, NOW_MS), NOW_MS)
    assert [label.text for label in found] == [*written, "now"]


def test_all_tables_share_the_window_that_half_of_them_need() -> None:
    axis = recent_axis([NOW_MS - 20 * DAY_MS, NOW_MS - 5 * HOUR_MS, NOW_MS - MINUTE_MS], NOW_MS)
    assert (axis.start_ms, axis.end_ms) == (NOW_MS - 6 * HOUR_MS, NOW_MS)
    assert recent_axis([], NOW_MS).end_ms == NOW_MS
    assert recent_axis([0], NOW_MS).start_ms == NOW_MS - 30 * DAY_MS


def test_few_snapshots_are_ticks_and_many_are_columns() -> None:
    few, many = overviews.table(), overviews.table(every_ms=HOUR_MS // 500, over_ms=20 * HOUR_MS)
    drawn = [draw(facts, NOW_MS) for facts in (few, many)]
    shapes = [{mark.shape for mark in picture.lanes[0].marks} for picture in drawn if picture is not None]
    assert shapes == [{Shape.TICK}, {Shape.COLUMN}]
    assert len(many.snapshots_ms) > 9_000
    assert drawn[1] is not None
    assert len(drawn[1].lanes[0].marks) <= TICKS_MOST
    strip = draw_strip(many, Axis(NOW_MS - HOUR_MS, NOW_MS))
    assert strip.spoken == "500 snapshots in the last 1 h"


def test_a_table_without_history_has_no_picture() -> None:
    assert draw(overviews.NEW, NOW_MS) is None
    assert draw_strip(overviews.NEW, Axis(NOW_MS - HOUR_MS, NOW_MS)).marks == ()


def test_durations_ages_and_counts_are_written_in_words() -> None:
    assert [duration(ms) for ms in (0, 7, 1_000, 61_500, 3_600_000, 90_000_000, 4_000 * DAY_MS)] == [
        "0 s",
        "7 ms",
        "1 s",
        "1 min 1 s",
        "1 h",
        "1 d 1 h",
        "4,000 d",
    ]
    assert [ago(NOW_MS + ms, NOW_MS) for ms in (-DAY_MS, -5, 2_000)] == ["1 d ago", "now", "in 2 s"]
    assert [count(n, "table needs", "tables need") for n in (1, 1_200)] == ["1 table needs", "1,200 tables need"]
