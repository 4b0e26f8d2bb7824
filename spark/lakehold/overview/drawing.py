"""The drawing of a table and the text of each mark: facts -> lanes along one axis of time. Pure.

A lane is one row of the drawing: the snapshots, the readable window, a hold, a follower (a subscription or durable client), or
the verdict of a check. `overview_page` puts the drawings on the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from lakehold.overview.facts import CheckFacts, FollowerFacts, HoldFacts, TableFacts
from lakehold.overview.lag import Lag
from lakehold.overview.picture_layout import Axis, AxisLabel, Span, axis_around, bins, labels
from lakehold.overview.table_problems import Level
from lakehold.overview.words import ago, count, duration, to_second

TICKS_MOST = 80
"""Snapshots that are drawn as a tick each, at most; more are drawn as this many columns whose heights are counts."""

_STRIP_TICKS_MOST = 40
"""Snapshots that a strip draws as a tick each, at most."""


class Shape(StrEnum):
    """The form of a mark: the first four have a length, the others are at a point.

    A column stands for several snapshots, a tick for one. A base is the readable window in a strip; a bar is that window in a
    lane, or the history that a hold keeps; `allowed` is the history that its MAX LAG lets it keep. The others are the time of a
    hold, the position of a follower and the time that a check was about.
    """

    COLUMN = "column"
    BASE = "base"
    BAR = "bar"
    ALLOWED = "allowed"
    TICK = "tick"
    HOLD = "hold"
    POSITION = "position"
    VERDICT = "verdict"


@dataclass(frozen=True)
class Mark:
    """One mark of a lane or strip.

    Attributes:
        shape: Its form.
        span: Where it is along the axis.
        text: A description, which the page shows for it; empty: none.
        level: Severity of what it shows.
        height: Its share of the lane's height, up to 1.
    """

    shape: Shape
    span: Span
    text: str
    level: Level = Level.FINE
    height: float = 1.0


@dataclass(frozen=True)
class Lane:
    """One row of a picture.

    Attributes:
        kind: Its kind, in one word.
        name: Name of the object it shows; empty if the kind is enough.
        value: Its content, as text.
        marks: In the order in which they are painted.
        level: Severity of what it shows.
        page: Path or URI of a verdict's page.
    """

    kind: str
    name: str
    value: str
    marks: tuple[Mark, ...]
    level: Level = Level.FINE
    page: str = ""

    @property
    def spoken(self) -> str:
        """Return the content of the lane as text."""
        return " ".join(part for part in (self.kind, self.name) if part) + f": {self.value}"


@dataclass(frozen=True)
class Timeline:
    """The picture of a table: its lanes, and the labels under all of them."""

    labels: tuple[AxisLabel, ...]
    lanes: tuple[Lane, ...]


@dataclass(frozen=True)
class Strip:
    """The picture of a table in one line."""

    marks: tuple[Mark, ...]
    spoken: str


def draw(table: TableFacts, now_ms: int) -> Timeline | None:
    """Draw the timeline of a table at `now_ms`; None if it has no history yet."""
    frontiers = [ms for ms in (table.since_ms, table.upper_ms) if ms is not None]
    known = [*table.snapshots_ms[:1], *table.snapshots_ms[-1:], *frontiers]
    if not known:
        return None
    axis = axis_around(known, now_ms)
    lanes = (
        _snapshots(table, axis),
        _readable(table, axis, now_ms),
        *_lag("", table.lag, "message", axis),
        *(lane for hold in table.holds for lane in (_hold(hold, axis), *_lag(hold.name, hold.lag, "row", axis))),
        *(lane for f in table.followers for lane in (_follower(f, axis), *_lag(f.name, f.lag, "row", axis))),
        *(_check(check, axis, now_ms) for check in table.checks),
    )
    return Timeline(labels(axis, now_ms), lanes)


def draw_strip(table: TableFacts, axis: Axis) -> Strip:
    """Draw the history of a table in one line, on an axis that all tables share."""
    recent = [ms for ms in table.snapshots_ms if axis.shows(ms)]
    marks = []
    if table.since_ms is not None and table.upper_ms is not None:
        span = Span(axis.place(table.since_ms), axis.place(table.upper_ms))
        marks.append(Mark(Shape.BASE, span, ""))
    if len(recent) <= _STRIP_TICKS_MOST:
        marks += [Mark(Shape.TICK, _at(axis, ms), "") for ms in recent]
    else:
        found = bins(recent, axis, _STRIP_TICKS_MOST)
        marks += [Mark(Shape.COLUMN, column.span, "", height=column.height) for column in found]
    window = duration(round(axis.end_ms - axis.start_ms))
    return Strip(tuple(marks), f"{count(len(recent), 'snapshot')} in the last {window}")


def _snapshots(table: TableFacts, axis: Axis) -> Lane:
    times = table.snapshots_ms
    if not times:
        return Lane("snapshots", "", "none yet", ())
    if len(times) <= TICKS_MOST:
        marks = [Mark(Shape.TICK, _at(axis, ms), f"snapshot of {to_second(ms)} UTC") for ms in times]
    else:
        marks = [
            Mark(
                Shape.COLUMN,
                found.span,
                f"{count(found.count, 'snapshot')}, {to_second(found.first_ms)} to {to_second(found.last_ms)} UTC",
                height=found.height,
            )
            for found in bins(times, axis, TICKS_MOST)
        ]
    return Lane("snapshots", "", f"{len(times):,}, the newest of {to_second(times[-1])}", tuple(marks))


def _readable(table: TableFacts, axis: Axis, now_ms: int) -> Lane:
    if table.since_ms is None or table.upper_ms is None:
        return Lane("readable", "", "not yet: the first snapshot is not complete", ())
    text = f"from {to_second(table.since_ms)} until before {to_second(table.upper_ms)} UTC"
    bar = Mark(Shape.BAR, Span(axis.place(table.since_ms), axis.place(table.upper_ms)), f"readable {text}")
    long = duration(max(0, table.upper_ms - table.since_ms))
    return Lane("readable", "", f"{long}, until {ago(table.upper_ms, now_ms)}", (bar,))


def _lag(name: str, lag: Lag, taken: str, axis: Axis) -> Iterator[Lane]:
    """Draw how far a table, hold or follower lagged over the last day, as columns; nothing where that is not known."""
    most_ms = lag.most_ms
    if most_ms is None:
        return
    marks = tuple(
        Mark(
            Shape.COLUMN,
            Span(axis.place(each.start_ms), axis.place(each.end_ms)),
            f"at most {duration(each.lag_ms)} behind, {count(each.taken, taken)}, {to_second(each.start_ms)} UTC on",
            height=round(each.lag_ms / max(1, most_ms), 3),
        )
        for each in lag.bins
        if each.lag_ms is not None and axis.place(each.end_ms) > axis.place(each.start_ms)
    )
    text = f"at most {duration(most_ms)} in the last day, {count(lag.taken, taken)}"
    yield Lane("lag", name, text, marks)


def backlog_text(table: TableFacts) -> str:
    """Describe the progress of a table that is catching up; empty for others."""
    if table.backlog is None:
        return ""
    read, total = table.backlog.read, table.backlog.total
    return f"{read:,} of {count(total, 'record')} read since it began to catch up, {table.backlog.behind:,} are left"


def _hold(hold: HoldFacts, axis: Axis) -> Lane:
    level = Level.LOOK if hold.is_exceeded or hold.forced_from_ms is not None else Level.FINE
    marks = list(_kept(hold, axis, level))
    if hold.at_ms is not None:
        marks.append(Mark(Shape.HOLD, _at(axis, hold.at_ms), f"held from {to_second(hold.at_ms)} UTC on", level))
    return Lane("hold", hold.name, hold_text(hold), tuple(marks), level)


def hold_text(hold: HoldFacts) -> str:
    """Describe the lag of a hold, and its limit."""
    allowed = f"MAX LAG {duration(hold.max_lag_ms)}"
    if hold.at_ms is None:
        return f"waits for the first readable time, {allowed}"
    if hold.is_exceeded:
        return f"{duration(hold.lag_ms)} behind, over its {allowed}"
    forced = ", moved by it" if hold.forced_from_ms is not None else ""
    return f"{duration(hold.lag_ms)} behind, {allowed}{forced}"


def _kept(hold: HoldFacts, axis: Axis, level: Level) -> Iterator[Mark]:
    """Draw the history that a hold keeps, over the history that it may keep."""
    if hold.at_ms is None or hold.upper_ms is None:
        return
    upper = axis.place(hold.upper_ms)
    allowed = Span(axis.place(hold.upper_ms - hold.max_lag_ms), upper)
    yield Mark(Shape.ALLOWED, allowed, f"within the MAX LAG of {duration(hold.max_lag_ms)}")
    kept = Span(min(upper, axis.place(hold.at_ms)), upper)
    yield Mark(Shape.BAR, kept, f'kept by hold "{hold.name}" from {to_second(hold.at_ms)} UTC on', level)


def _follower(follower: FollowerFacts, axis: Axis) -> Lane:
    level = Level.FINE
    if follower.is_lapsed and not follower.starts_over:
        level = Level.WRONG
    elif follower.is_lapsed or follower.is_behind:
        level = Level.LOOK
    marks = tuple(_kept(follower.hold, axis, level)) if follower.hold is not None else ()
    if follower.position_ms is not None:
        text = f"has taken all before {to_second(follower.position_ms)} UTC"
        marks = (*marks, Mark(Shape.POSITION, _at(axis, follower.position_ms), text, level))
    return Lane(follower.kind.spoken, follower.name, follower_text(follower), marks, level)


def follower_text(follower: FollowerFacts) -> str:
    """Describe the lag of a follower, and its hold."""
    lag = "has not begun" if follower.lag_ms is None else f"{duration(follower.lag_ms)} behind"
    if follower.lag.waiting:
        lag += f" ({count(follower.lag.waiting, 'row')})"
    held = f"MAX LAG {duration(follower.hold.max_lag_ms)}" if follower.hold is not None else "holds nothing"
    state = "" if follower.state in ("idle", "new") else f"{follower.state}, "
    return f"{state}{lag}, {held}"


def _check(check: CheckFacts, axis: Axis, now_ms: int) -> Lane:
    passed, failed = ("equal", "differs") if check.is_comparison else ("passed", "failed")
    verdict = passed if check.success else failed
    level = Level.FINE if check.success else Level.WRONG
    mark = Mark(Shape.VERDICT, _at(axis, check.at_ms), f"{verdict} at {to_second(check.at_ms)} UTC", level)
    if check.compared_with is not None:
        value = f"{verdict} at {to_second(check.at_ms)}, {ago(check.checked_at_ms, now_ms)}"
        return Lane(check.compared_with, "", value, (mark,), level, check.page)
    met = check.evaluated - len(check.failures)
    value = f"{verdict}, {met:,} of {check.evaluated:,} met, {ago(check.checked_at_ms, now_ms)}"
    return Lane("check", "" if check.hold is None else f"on {check.hold}", value, (mark,), level, check.page)


def _at(axis: Axis, time_ms: int) -> Span:
    place = axis.place(time_ms)
    return Span(place, place)
