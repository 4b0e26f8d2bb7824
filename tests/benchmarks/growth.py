"""The cost of work as a lake grows: requests to its store and its catalog, and memory. None of it depends on the machine's speed.

Each axis grows alone: tables of a lake, tables of a source, snapshots, files and holds of a table. At each size the same work is
done twice in a lake that was just opened: first with empty caches, as in a new process, and again with what these keep.
"""

from __future__ import annotations

import gc
import itertools
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from lakehold.lake import Lake
from tests.benchmarks.driver_heap import driver_heap_bytes
from tests.benchmarks.figures import Figure
from tests.benchmarks.growth_fits import Cost, Costs, as_formulas
from tests.benchmarks.holds import multiply
from tests.counted_lake import CountedPlace, counted_place
from tests.growing_lake import CHANGING, GrowingLake, Work

_numbers = itertools.count()
_MIB = 2**20
_WIDTH = 220


def growth(lake: Lake, directory: Path, *, quick: bool) -> list[Figure]:
    """Measure each axis at three sizes, and print a formula for each cost; `quick` takes two small sizes."""
    directory.mkdir(parents=True)
    figures: list[Figure] = []
    with counted_place(directory / "servers") as place:
        growing = _Growing(lake.spark, place, directory, quick)
        axes: dict[str, Callable[[], Costs]] = {
            "tables in the lake": growing.tables_of_a_lake,
            "tables in the source": growing.tables_of_a_source,
            "snapshots of the table": growing.snapshots,
            "files of the table": growing.files,
            "holds on the table": growing.holds,
        }
        for axis, measured in axes.items():
            began_s = time.monotonic()
            costs = measured()
            Console(width=_WIDTH).print(as_formulas(axis, costs), f"{time.monotonic() - began_s:,.0f} s")
            figures += _figures(axis, costs)
    return figures


@dataclass(frozen=True)
class _Growing:
    """The axes on which a lake grows; each method returns the costs by size."""

    spark: SparkSession
    place: CountedPlace
    directory: Path
    quick: bool

    def tables_of_a_lake(self) -> Costs:
        return self._by_size((10, 100, 1_000), lambda of, size: of.add_tables(size - 1))

    def tables_of_a_source(self) -> Costs:
        return self._by_size((2, 20, 200), lambda of, size: of.add_neighbours(size - 1))

    def snapshots(self) -> Costs:
        def grow(of: GrowingLake, size: int) -> None:
            with of.opened() as lake:
                multiply(lake, CHANGING, size - 1)

        return self._by_size((10, 100, 1_000), grow)

    def files(self) -> Costs:
        """Measure a table with a data file and a snapshot for each of its rows."""

        def grow(of: GrowingLake, size: int) -> None:
            with of.opened() as lake:
                for key in range(1, size):
                    of.change(lake, key)

        return self._by_size((1, 10, 100), grow)

    def holds(self) -> Costs:
        def grow(of: GrowingLake, size: int) -> None:
            with of.opened() as lake:
                for number in range(size):
                    lake.sql(f"CREATE HOLD h{number} ON {CHANGING}")

        return self._by_size((1, 10, 100), grow)

    def _by_size(self, sizes: Sequence[int], grow: Callable[[GrowingLake, int], None]) -> Costs:
        """Measure all work at each size, in a lake of its own: so only the size differs."""
        costs: dict[int, dict[str, Cost]] = {}
        for size in (sizes[0], 2 * sizes[0]) if self.quick else sizes:
            of = GrowingLake(self.spark, self.place.new_lake(self.directory), self.directory / f"lake{next(_numbers)}")
            began_s = time.monotonic()
            grow(of, size)
            grown_s = time.monotonic()
            costs[size] = self._costs(of)
            took = f"grown in {grown_s - began_s:,.0f} s, measured in {time.monotonic() - grown_s:,.0f} s"
            Console().print(f"{size:,}: {took}", style="dim")
        return costs

    def _costs(self, of: GrowingLake) -> dict[str, Cost]:
        costs: dict[str, Cost] = {}
        for name, work in of.works.items():
            # Every fifteenth commit to a table of `mz_catalog` also expires snapshots: the lesser of two batches does not.
            runs = [self._twice(of, work) for _ in range(2 if work == of.ingest else 1)]
            costs[name], costs[f"{name}, again"] = (
                min(run, key=lambda cost: cost.requests.store.total()) for run in zip(*runs, strict=True)
            )
        return costs

    def _twice(self, of: GrowingLake, work: Work) -> tuple[Cost, Cost]:
        with of.opened() as lake:
            return self._cost(of, lake, work, traces=True), self._cost(of, lake, work, traces=False)

    def _cost(self, of: GrowingLake, lake: Lake, work: Work, *, traces: bool) -> Cost:
        if work == of.ingest:
            of.record()
        peak, kept = None, driver_heap_bytes() if traces else 0
        with self.place.counted() as requests:
            if traces:
                gc.collect()
                tracemalloc.start()
            work(lake)
            if traces:
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
        if peak is None:
            return Cost(requests)
        return Cost(requests, peak / _MIB, (driver_heap_bytes() - kept) / _MIB)


def _figures(axis: str, costs: Costs) -> list[Figure]:
    """Compare each cost at the larger sizes with the one at the smallest size."""
    smallest = min(costs)
    return [
        Figure(f"{work}, {size:,} {axis}: {unit}", unit, (value,), f"{smallest:,}", (floor,), goal=None)
        for size, works in costs.items()
        if size != smallest
        for work, cost in works.items()
        for unit, value in cost.by_unit.items()
        if (floor := costs[smallest][work].by_unit[unit])
    ]
