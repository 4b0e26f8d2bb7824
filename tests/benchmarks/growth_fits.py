"""Formulas for costs that grow: a constant and a slope, from measurements at a few sizes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from tests.counted_lake import Requests


@dataclass(frozen=True)
class Cost:
    """The cost of one piece of work.

    Attributes:
        requests: Requests to the object store and to the catalog.
        memory_mib: What Python allocated at most at one time, beyond what was there before; None: it was not measured.
        driver_mib: What Spark's driver keeps after the work, beyond what it kept before; None: it was not measured.
    """

    requests: Requests
    memory_mib: float | None = None
    driver_mib: float | None = None

    @property
    def by_unit(self) -> dict[str, float]:
        """Return the numbers by their unit: requests to the store and KiB of it, statements in the catalog, MiB of memory."""
        counted = self.requests
        found = {
            "requests": counted.store.total(),
            "KiB": counted.store_bytes / _KIB,
            "statements": counted.catalog,
            "MiB": self.memory_mib,
            "MiB of the driver": self.driver_mib,
        }
        return {unit: value for unit, value in found.items() if value is not None}


Costs = Mapping[int, Mapping[str, Cost]]
"""Costs by size and work."""


@dataclass(frozen=True)
class Formula:
    """A cost as `constant + slope * size`, and how it bends: the slope between the largest sizes, against the first slope."""

    constant: float
    slope: float
    bend: float | None

    def __str__(self) -> str:
        grows = f" + {self.slope:.3g} n" if abs(self.slope) >= _LEAST_SLOPE else ""
        return f"{self.constant:.3g}{grows}"


_LEAST_SLOPE = 0.0005
_KINDS = 8
_KIB = 2**10


def fitted(costs: Mapping[int, float]) -> Formula:
    """Fit a line to costs by size."""
    sizes, values = [*costs], [*costs.values()]
    slope, constant = statistics.linear_regression(sizes, values)
    slopes = [(b - a) / (n - m) for (m, a), (n, b) in zip(costs.items(), [*costs.items()][1:], strict=False)]
    return Formula(constant, slope, slopes[-1] / slopes[0] if len(slopes) > 1 and slopes[0] > 0 else None)


def as_formulas(axis: str, costs: Costs) -> Table:
    """Return a table with a row for each piece of work and unit: the costs by size, and a formula."""
    table = Table(title=f"n: {axis}", box=None, pad_edge=False)
    for heading in ("work", "unit", *(f"{size:,}" for size in costs), "formula", "bend", "most at the largest size"):
        table.add_column(heading)
    for work, cost in costs[max(costs)].items():
        kinds = ", ".join(f"{count} {kind}" for kind, count in cost.requests.store.most_common(_KINDS))
        for unit in cost.by_unit:
            values = {size: works[work].by_unit[unit] for size, works in costs.items()}
            formula = fitted(values)
            bend = "" if formula.bend is None else f"{formula.bend:.1f}"
            table.add_row(work, unit, *(f"{value:,.4g}" for value in values.values()), str(formula), bend, kinds)
            kinds = ""
    return table
