"""The figures of the benchmarks' page with their history: `docs/benchmarks/figures.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from tests.benchmarks.figures import is_met
from tests.doc_pages import DOCS

FIGURES = DOCS / "benchmarks" / "figures.json"


class Measurement(BaseModel, frozen=True):
    """A figure as one call of the benchmarks measured it.

    Args:
        date: The day, as `2026-11-26`.
        note: How busy the machine was; empty if nobody recorded it.
        runs: The measured runs.
        median: The median of the runs.
        lowest: The lowest value; None if nobody recorded it.
        highest: The highest value.
        floor: The median of the floor.
        ratio: The ratio of the medians, before they were rounded.
    """

    date: str
    note: str
    runs: int
    median: float
    lowest: float | None = None
    highest: float | None = None
    floor: float
    ratio: float


class Result(BaseModel, frozen=True):
    """A figure of the page.

    Args:
        group: The part of the page that has it.
        benchmark: What `--only` takes.
        name: The `Figure`'s.
        unit: As a `Figure` has it.
        floor: The name of the floor: figures of one name have different floors.
        goal: The limit of the ratio; None if there is none.
        measured: The measurements, the newest last.
    """

    group: str
    benchmark: str
    name: str
    unit: str
    floor: str
    goal: float | None = None
    measured: tuple[Measurement, ...]

    @property
    def newest(self) -> Measurement:
        return self.measured[-1]

    @property
    def is_met(self) -> bool | None:
        return is_met(self.newest.ratio, self.goal, self.unit)


_RESULTS = TypeAdapter(tuple[Result, ...])


def load(path: Path = FIGURES) -> tuple[Result, ...]:
    """Read all figures."""
    return _RESULTS.validate_json(path.read_bytes())


def store(results: tuple[Result, ...], path: Path = FIGURES) -> None:
    """Write all figures."""
    path.write_bytes(_RESULTS.dump_json(results, indent=1, exclude_none=True) + b"\n")


def with_measured(
    results: Iterable[Result], figures: Iterable[Mapping[str, Any]], date: str, note: str
) -> tuple[Result, ...]:
    """Add what a call of the benchmarks measured to the history of the figures that the page has.

    Args:
        results: The figures of the page.
        figures: The JSON of `--output`.
        date: The day.
        note: How busy the machine was.
    """
    measured = {(figure["name"], figure["floor"]): figure for figure in figures}

    def with_newest(result: Result) -> Result:
        if (figure := measured.get((result.name, result.floor))) is None:
            return result
        values = figure["values"]
        newest = Measurement(
            date=date,
            note=note,
            runs=len(values),
            median=figure["median"],
            lowest=min(values),
            highest=max(values),
            floor=figure["floor_median"],
            ratio=figure["ratio"],
        )
        return result.model_copy(update={"goal": figure["goal"], "measured": (*result.measured, newest)})

    return tuple(map(with_newest, results))
