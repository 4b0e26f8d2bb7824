"""Times to places, for the drawings of tables: pure.

A place is a percentage of the drawing's width from the left, so that it fits any width.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

_SHORTEST_MS = 10 * SECOND_MS
"""The shortest span of an axis: a table with one snapshot has one, too."""

_MARGIN = 0.02
"""Share of the span that is left free on either side, so that a mark at an end is fully visible."""

_STEPS_MS = (
    *(s * SECOND_MS for s in (1, 2, 5, 10, 15, 30)),
    *(m * MINUTE_MS for m in (1, 2, 5, 10, 15, 30)),
    *(h * HOUR_MS for h in (1, 2, 3, 6, 12)),
    *(d * DAY_MS for d in (1, 2, 5, 10, 30, 90, 365, 3650, 36500)),
)
_LABELS_MOST = 7
_APART = 10.0
"""Least distance of a time's label from the label `now`, in percent."""

_WINDOWS_MS = (
    *(m * MINUTE_MS for m in (10, 30)),
    *(h * HOUR_MS for h in (1, 3, 6, 12)),
    *(d * DAY_MS for d in (1, 2, 7, 14, 30)),
)


@dataclass(frozen=True)
class Axis:
    """The times from `start_ms` to `end_ms`, which is later."""

    start_ms: float
    end_ms: float

    def place(self, time_ms: float) -> float:
        """Return the place of `time_ms`; a time outside of the axis is at the nearer end."""
        share = (time_ms - self.start_ms) / (self.end_ms - self.start_ms)
        return round(100 * min(1.0, max(0.0, share)), 3)

    def shows(self, time_ms: float) -> bool:
        """Return whether `time_ms` is on the axis."""
        return self.start_ms <= time_ms <= self.end_ms


@dataclass(frozen=True)
class Span:
    """A range of places from `start` to `end`."""

    start: float
    end: float

    @property
    def width(self) -> float:
        """Return the length of the span, which is never negative."""
        return round(self.end - self.start, 3)


@dataclass(frozen=True)
class AxisLabel:
    """A time written under an axis."""

    place: float
    text: str
    is_now: bool = False


@dataclass(frozen=True)
class Bin:
    """Times too close together to be drawn apart: `height` is their number, as a share of the largest bin's."""

    span: Span
    height: float
    count: int
    first_ms: int
    last_ms: int


def axis_around(marks_ms: Sequence[int], now_ms: int) -> Axis:
    """Return an axis that shows all of `marks_ms`, and `now_ms` if that is not long after them.

    If a table has not changed for long, the axis ends where its history does, so that the history stays legible.
    """
    first, last = (min(marks_ms), max(marks_ms)) if marks_ms else (now_ms, now_ms)
    span_ms = max(last - first, _SHORTEST_MS)
    end = now_ms if last < now_ms <= last + span_ms / 2 else last
    missing = max(0, _SHORTEST_MS - (end - first))
    margin = _MARGIN * max(end - first, _SHORTEST_MS)
    return Axis(first - missing / 2 - margin, end + missing / 2 + margin)


def recent_axis(sinces_ms: Sequence[int], now_ms: int) -> Axis:
    """Return an axis of the last minutes, hours or days before `now_ms`.

    It is as long as the history of half of the tables, which begin at `sinces_ms`.
    """
    ordered = sorted(sinces_ms)
    middle_ms = ordered[(len(ordered) - 1) // 2] if ordered else now_ms
    window_ms = next((window for window in _WINDOWS_MS if window >= now_ms - middle_ms), _WINDOWS_MS[-1])
    return Axis(now_ms - window_ms, now_ms)


def labels(axis: Axis, now_ms: int) -> tuple[AxisLabel, ...]:
    """Return labels for some round times along `axis`, in UTC, and for now if that is on the axis.

    The first label of a day is its date.
    """
    span_ms = axis.end_ms - axis.start_ms
    step_ms = next((step for step in _STEPS_MS if span_ms / step < _LABELS_MOST), _STEPS_MS[-1])
    first = -(-int(axis.start_ms) // step_ms) * step_ms
    now = (AxisLabel(axis.place(now_ms), "now", is_now=True),) if axis.shows(now_ms) else ()
    times = range(first, int(axis.end_ms) + 1, step_ms)
    found = (AxisLabel(axis.place(time_ms), _label(time_ms, step_ms)) for time_ms in times)
    clear = (label for label in found if all(abs(label.place - other.place) >= _APART for other in now))
    return tuple(sorted((*(label for label in clear if label.text), *now), key=lambda label: label.place))


def bins(times_ms: Sequence[int], axis: Axis, most: int) -> tuple[Bin, ...]:
    """Gather `times_ms`, in order and all on `axis`, in bins; a whole axis has `most` of them, and empty bins are skipped."""
    if not times_ms:
        return ()
    # From the first time to the last: a bin that is half outside would look as if less had happened there.
    first, last = times_ms[0], times_ms[-1]
    number = max(1, round(most * (last - first) / (axis.end_ms - axis.start_ms)))
    edges = [first + place * (last - first) / number for place in range(1, number)]
    cuts = [0, *(bisect_left(times_ms, edge) for edge in edges), len(times_ms)]
    parts = [times_ms[start:end] for start, end in pairwise(cuts)]
    places = [axis.place(ms) for ms in (first, *edges, last)]
    width = 100 / most
    largest = max(map(len, parts))
    return tuple(
        Bin(Span(start, max(end, start + width / 2)), round(len(part) / largest, 3), len(part), part[0], part[-1])
        for part, (start, end) in zip(parts, pairwise(places), strict=True)
        if part
    )


def _label(time_ms: int, step_ms: int) -> str:
    try:
        at = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    if step_ms >= 365 * DAY_MS:
        return f"{at:%Y}"
    if time_ms % DAY_MS == 0:
        return f"{at.day} {at:%b}"
    return f"{at:%H:%M}" if step_ms >= MINUTE_MS else f"{at:%H:%M:%S}"
