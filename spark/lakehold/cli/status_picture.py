"""The status of a lake as a person reads it on a terminal: what needs attention first, and how far everything lags."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lakehold.overview.drawing import follower_text, hold_text
from lakehold.overview.facts import Overview, TableFacts
from lakehold.overview.headline import headline
from lakehold.overview.lag import Lag
from lakehold.overview.table_problems import Level, Problem, level_of, urgent_first
from lakehold.overview.words import count, duration, to_second
from lakehold.printable import printable

_STYLES = {Level.WRONG: "bold red", Level.LOOK: "yellow", Level.FINE: "green"}
_FOLDED = ("table", "name", "lag")
_SIGNS = {Level.WRONG: "✕", Level.LOOK: "!", Level.FINE: "✓"}


def picture(overview: Overview, notices: Sequence[str] = ()) -> RenderableType:
    """Draw a lake.

    Args:
        overview: The facts about it.
        notices: Sentences to show below.
    """
    found = urgent_first(overview)
    first = headline(overview, [problems for _, problems in found])
    title = Text.assemble(
        (f"{_SIGNS[first.level]} {first.text}", _STYLES[first.level]),
        (f"  {printable(overview.warehouse)}, {to_second(overview.taken_at_ms)} UTC", "dim"),
    )
    parts: list[RenderableType] = [title]
    if found:
        parts += [Text(), _tables(found, overview.taken_at_ms)]
    subscribers = [*_subscribers(overview)]
    if subscribers:
        knows_day = any(lag.bins for lag in (*(f.lag for f in overview.followers), *(h.lag for h in overview.holds)))
        names = ("", "name", "lag", "lag in 24 h", "at most", "rows")[: None if knows_day else 3]
        parts += [Text(), _grid(names, [row[: len(names)] for row in subscribers])]
    for table, problems in found:
        for problem in problems:
            parts += _problem(table.name, problem)
    parts += [Text(f"\nnotice: {printable(text)}", style="yellow") for text in notices]
    return Group(*parts)


def _tables(found: Iterable[tuple[TableFacts, tuple[Problem, ...]]], now_ms: int) -> Table:
    rows = []
    for table, problems in found:
        level = level_of(problems)
        rows.append(
            (
                Text(f"{_SIGNS[level]} {printable(table.name)}", style=_STYLES[level]),
                Text(table.state.value),
                Text("-" if table.rows is None else f"{table.rows:,}", justify="right"),
                Text(_behind(table, now_ms), justify="right"),
                *_last_day(table.lag),
            )
        )
    return _grid(("table", "state", "rows", "behind", "lag in 24 h", "at most", "messages"), rows)


def _behind(table: TableFacts, now_ms: int) -> str:
    """Describe how far a table is behind: in time, and in messages while it catches up with its source."""
    time = "-" if table.upper_ms is None else duration(max(0, now_ms - table.upper_ms))
    return time if table.backlog is None else f"{time}, {count(table.backlog.behind, 'message')}"


def _subscribers(overview: Overview) -> Iterator[tuple[Text, ...]]:
    for follower in overview.followers:
        is_late = follower.is_lapsed or follower.is_behind
        name = Text(printable(follower.name), style=_STYLES[Level.LOOK if is_late else Level.FINE])
        yield Text(follower.kind.spoken), name, Text(follower_text(follower)), *_last_day(follower.lag)
    for hold in overview.holds:
        name = Text(printable(hold.name), style=_STYLES[Level.LOOK if hold.is_exceeded else Level.FINE])
        yield Text("hold"), name, Text(hold_text(hold)), *_last_day(hold.lag)


def _last_day(lag: Lag) -> tuple[Text, Text, Text]:
    """Return the cells of a lag over the last day: drawn, at most, and how much was taken."""
    most_ms = lag.most_ms
    return (
        Text(lag.sparkline, style="cyan"),
        Text("-" if most_ms is None else duration(most_ms), justify="right"),
        Text(f"{lag.taken:,}" if lag.bins else "-", justify="right"),
    )


def _problem(name: str, problem: Problem) -> Iterator[RenderableType]:
    yield Text(f"\n{_SIGNS[problem.level]} {printable(name)}: {printable(problem.text)}", style=_STYLES[problem.level])
    for sentence in filter(None, (problem.detail, problem.hint)):
        yield Padding(Text(printable(sentence)), (0, 0, 0, 2))
    if problem.action is not None:
        yield Text(f"  lakehold {problem.action.value} {printable(problem.target)}", style="bold")


def _grid(names: Sequence[str], rows: Iterable[Sequence[Text]]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    cells = [[Text(name, style="dim") for name in names], *rows]
    for name in names:
        grid.add_column(overflow="fold", no_wrap=name not in _FOLDED)
    for row in cells:
        grid.add_row(*row)
    return grid
