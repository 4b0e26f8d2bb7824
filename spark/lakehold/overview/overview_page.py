"""An overview as one HTML page that needs no script, no font and no network. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from lakehold.overview import words
from lakehold.overview.drawing import Strip, Timeline, backlog_text, draw, draw_strip
from lakehold.overview.facts import Overview, TableFacts
from lakehold.overview.headline import headline
from lakehold.overview.picture_layout import recent_axis
from lakehold.overview.table_problems import Action, Level, Problem, level_of, problem_of_source, urgent_first
from lakehold.overview.table_status import State
from lakehold.templates import page_template, shown_path

OPENED_MOST = 8
"""Tables that are unfolded when the page opens, at most: those that need a person, or all of a small lake."""

Links = Callable[[Action, str], str | None]
"""Where a person can act: an action and its target (a source, a table, a subscription, or the path of a check's page) -> a URL.
None: nowhere; the page then names the command."""


@dataclass(frozen=True)
class Row:
    """A table on the page."""

    facts: TableFacts
    problems: tuple[Problem, ...]
    timeline: Timeline | None
    strip: Strip
    is_open: bool

    @property
    def backlog(self) -> str:
        """Describe the progress of a table that is catching up."""
        return backlog_text(self.facts)

    @property
    def level(self) -> Level:
        """Return the level of the table's worst problem."""
        return level_of(self.problems)


@dataclass(frozen=True)
class Figure:
    """A number of the summary: `number` of `total`; a total of 0 is not shown."""

    name: str
    number: int
    total: int
    level: Level


def file_links(action: Action, target: str) -> str | None:
    """Return the URL of a check's page, for an overview that is a file itself."""
    if action is not Action.CHECK_PAGE or not target:
        return None
    if urlsplit(target).scheme in ("http", "https"):
        return target
    path = PurePosixPath(target)
    return path.as_uri() if path.is_absolute() else None


def render(overview: Overview, links: Links = file_links) -> str:
    """Render the page.

    Args:
        overview: The facts to show.
        links: Where a person can act.
    """
    rows = _rows(overview)
    return page_template("lakehold.overview").render(
        overview=overview,
        rows=rows,
        groups=[(level, [row for row in rows if row.level is level]) for level in Level],
        sources=[(source, problem_of_source(source)) for source in overview.sources],
        headline=headline(overview, [row.problems for row in rows]),
        figures=_figures(overview),
        links=links,
        window=words.duration(_window_ms(overview)),
        warehouse=shown_path(overview.warehouse),
        words=words,
        Action=Action,
        Level=Level,
    )


def _rows(overview: Overview) -> list[Row]:
    axis = recent_axis(_sinces(overview), overview.taken_at_ms)
    found = urgent_first(overview)
    return [
        Row(
            table,
            problems,
            draw(table, overview.taken_at_ms),
            draw_strip(table, axis),
            is_open=place < OPENED_MOST and (level_of(problems) is Level.WRONG or len(found) <= OPENED_MOST // 2),
        )
        for place, (table, problems) in enumerate(found)
    ]


def _sinces(overview: Overview) -> list[int]:
    return [table.since_ms for table in overview.tables if table.since_ms is not None]


def _window_ms(overview: Overview) -> int:
    axis = recent_axis(_sinces(overview), overview.taken_at_ms)
    return round(axis.end_ms - axis.start_ms)


def _figures(overview: Overview) -> list[Figure]:
    tables, holds, followers, checks = overview.tables, overview.holds, overview.followers, overview.checks
    every_hold = [*holds, *(follower.hold for follower in followers if follower.hold is not None)]
    stopped = sum(table.state is State.STOPPED for table in tables)
    failed = sum(not check.success for check in checks)
    over = sum(hold.is_exceeded for hold in every_hold)
    late = [follower for follower in followers if follower.is_lapsed or follower.is_behind]
    lost = any(follower.is_lapsed and not follower.starts_over for follower in late)
    errors = sum(table.open_errors for table in tables)
    return [
        Figure("tables stopped", stopped, len(tables), _level(stopped, Level.WRONG)),
        Figure("checks failed", failed, len(checks), _level(failed, Level.WRONG)),
        Figure("subscribers behind", len(late), len(followers), _level(len(late), Level.WRONG if lost else Level.LOOK)),
        Figure("holds over MAX LAG", over, len(every_hold), _level(over, Level.LOOK)),
        Figure("messages in error", errors, 0, _level(errors, Level.LOOK)),
    ]


def _level(number: int, level: Level) -> Level:
    return level if number else Level.FINE
