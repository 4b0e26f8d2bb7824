"""The first sentence about a lake: whether it needs a person. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehold.overview import words
from lakehold.overview.facts import Overview
from lakehold.overview.table_problems import Level, Problem, level_of, problem_of_source


@dataclass(frozen=True)
class Headline:
    """The first thing to know about a lake."""

    text: str
    level: Level


def headline(overview: Overview, problems: Sequence[tuple[Problem, ...]]) -> Headline:
    """Describe the state of a lake in one sentence.

    Args:
        overview: The lake.
        problems: The problems of each table.
    """
    wrong, look = (sum(level_of(each) is level for each in problems) for level in (Level.WRONG, Level.LOOK))
    interrupted = sum(problem_of_source(source) is not None for source in overview.sources)
    worth = [words.count(number, what) for number, what in ((look, "table"), (interrupted, "source")) if number]
    if wrong:
        more = f"; worth a look: {' and '.join(worth)}" if worth else ""
        return Headline(f"{words.count(wrong, 'table needs', 'tables need')} a person{more}", Level.WRONG)
    if worth:
        return Headline(f"Nothing is broken; worth a look: {' and '.join(worth)}", Level.LOOK)
    return Headline(f"{words.count(len(problems), 'table')}, all in order", Level.FINE)
