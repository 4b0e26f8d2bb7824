"""Writes the tables and plots of `docs/benchmarks.md` from the figures in JSON: `python -m tests.benchmarks.page`.

`--add FILE` first adds what `python -m tests.benchmarks --output FILE` has measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from tests.benchmarks.figures import is_rate
from tests.benchmarks.plots import drawn
from tests.benchmarks.results import Result, load, store, with_measured
from tests.doc_pages import DOCS

PAGE = DOCS / "benchmarks.md"
_BLOCK = re.compile(r"(<!-- figures: (?P<group>[a-z ]+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
_HEAD = "| measured | `--only` | of | median | floor | ratio | goal |\n|---|---|---|---|---|---|---|\n"


def rendered(results: Sequence[Result]) -> dict[Path, str]:
    """Return the text of the page and of each plot.

    Raises:
        KeyError: The page and the figures do not have the same groups.
    """
    groups = {group: [*of] for group, of in groupby(results, key=lambda result: result.group)}
    plots = {group: PAGE.parent / "benchmarks" / f"{group.replace(' ', '-')}.svg" for group in groups}

    def block(match: re.Match[str]) -> str:
        group = match["group"]
        shown = groups.pop(group)
        picture = f"![Ratios of {group}, with goals and history]({plots[group].relative_to(PAGE.parent)})"
        return f"{match[1]}{picture}\n\n{_HEAD}{''.join(map(_row, shown))}{match[3]}"

    drawings = {plots[group]: drawn(of) for group, of in groups.items()}
    page = _BLOCK.sub(block, PAGE.read_text())
    if groups:
        raise KeyError(f"{PAGE.name} has no place for {', '.join(groups)}")
    return {PAGE: page, **drawings}


def _row(result: Result) -> str:
    newest = result.newest
    runs = "one run" if newest.runs == 1 else f"{newest.runs} runs"
    of = ", ".join(text for text in (newest.date[5:], newest.note, runs) if text)
    median = _value(newest.median, result.unit)
    if newest.lowest is not None and newest.highest is not None:
        median += f" ({_number(newest.lowest)} to {_number(newest.highest)})"
    floor = f"{_value(newest.floor, result.unit)}: {result.floor}"
    goal = "" if result.goal is None else f"{'≥' if is_rate(result.unit) else '≤'} {result.goal:g}"
    goal += {None: "none", True: ", met", False: ", **missed**"}[result.is_met]
    cells = (result.name, f"`{result.benchmark}`", of, median, floor, _number(newest.ratio), goal)
    return f"| {' | '.join(cells)} |\n"


def _value(value: float, unit: str) -> str:
    return f"{_number(value)} {unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def main(
    *,
    add: Annotated[Path | None, typer.Option(help="JSON that `python -m tests.benchmarks --output` wrote.")] = None,
    note: Annotated[str, typer.Option(help="How busy the machine was.")] = "quiet",
) -> None:
    """Write the page and its plots, after the figures of a new run were added."""
    results = load()
    if add is not None:
        results = with_measured(results, json.loads(add.read_text()), datetime.now(UTC).date().isoformat(), note)
        store(results)
    for path, text in rendered(results).items():
        path.write_text(text)


if __name__ == "__main__":
    typer.run(main)
