"""The results of benchmarks: each figure beside its floor in the same run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """A measured value and the floor that it is compared with.

    Args:
        name: The name of the measured work.
        unit: `records/s` (more is better), or `s`, `requests`, `statements` or `MiB` (less is better).
        values: Each run's, in order.
        floor_name: The name of the work it is compared with.
        floors: Each run's, in the same order: both run in turn, so that a drifting machine speed does not affect the ratio.
        goal: The limit of the ratio of the medians: a minimum for rates, a maximum for others. None: no goal.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    floor_name: str
    floors: tuple[float, ...]
    goal: float | None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def floor(self) -> float:
        return statistics.median(self.floors)

    @property
    def ratio(self) -> float:
        return self.median / self.floor

    @property
    def is_met(self) -> bool | None:
        return is_met(self.ratio, self.goal, self.unit)

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "unit": self.unit,
            "median": round(self.median, 3),
            "values": [round(v, 3) for v in self.values],
            "floor": self.floor_name,
            "floor_median": round(self.floor, 3),
            "floor_values": [round(v, 3) for v in self.floors],
            "ratio": round(self.ratio, 3),
            "goal": self.goal,
            "met": self.is_met,
        }


def is_rate(unit: str) -> bool:
    """Return whether more is better."""
    return unit == "records/s"


def is_met(ratio: float, goal: float | None, unit: str) -> bool | None:
    """Compare a ratio with its goal; None if there is no goal."""
    if goal is None:
        return None
    return ratio >= goal if is_rate(unit) else ratio <= goal


def seconds(run: Callable[[], object]) -> float:
    """Measure `run` in seconds."""
    started = perf_counter()
    run()
    return perf_counter() - started


def as_table(figures: Sequence[Figure]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("measured", "median", "min to max", "floor", "floor median", "ratio", "goal", ""):
        table.add_column(heading, justify="left" if heading in {"measured", "floor", ""} else "right")
    for f in figures:
        sign = "≥" if is_rate(f.unit) else "≤"
        digits = 2 if f.unit == "s" else 0
        table.add_row(
            f.name,
            f"{f.median:.{digits}f} {f.unit}",
            f"{min(f.values):.{digits}f} to {max(f.values):.{digits}f}",
            f.floor_name,
            f"{f.floor:.{digits}f} {f.unit}",
            f"{f.ratio:.2f}",
            "" if f.goal is None else f"{sign} {f.goal}",
            {None: "", True: "met", False: "MISSED"}[f.is_met],
        )
    return table


def as_json(figures: Sequence[Figure]) -> str:
    return json.dumps([f.as_json() for f in figures], indent=2)
