"""A table after many batches with maintenance between them: its batches and reads against a new table's."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

from lakehold.lake import Lake
from tests.benchmarks.figures import Figure, seconds
from tests.benchmarks.merges import Table

_WARM_UP = 6
_MEASURED = 20
"""Measured batches of each table, in turns, so that the machine is equally busy for both."""

_MAINTAINED_EVERY = 100
"""Batches from one maintenance to the next, as of a table with a batch a minute that is maintained every second hour."""


def maintained(lake: Lake, directory: Path, rows: int, batches: int) -> list[Figure]:
    """Merge `batches` of 100 changes into `rows` rows, with maintenance; the table keeps little more than the grace's history."""
    old, young = (Table(lake, directory, name, rows) for name in ("old", "young"))
    name = f"bench.{old.name}"
    lake.sql(f"ALTER TABLE {name} SET (RETAIN HISTORY = '10 seconds')")
    for run in range(batches):
        changed(old, run)
        if run % _MAINTAINED_EVERY == _MAINTAINED_EVERY - 1:
            (report,) = lake.maintain([name])
            assert report.error is None, report.error
    for run in range(_WARM_UP):
        changed(young, run)
    commits: dict[str, list[float]] = {old.name: [], young.name: []}
    reads: dict[str, list[float]] = {old.name: [], young.name: []}
    for run in range(_MEASURED):
        for table in (old, young):
            commits[table.name].append(changed(table, batches + run))
            one_row = f"SELECT n FROM bench.{table.name} WHERE k = {run}"
            reads[table.name].append(seconds(partial(lake.sql, one_row)))
    return [
        Figure(
            f"{what}, after {batches:,} batches",
            "s",
            tuple(of[old.name]),
            "a new table",
            tuple(of[young.name]),
            goal=1.2,
        )
        for what, of in ((f"100 changes into {rows:,} rows", commits), ("a row by its key", reads))
    ]


def changed(table: Table, run: int) -> float:
    """Merge a batch of 100 changes; return its seconds."""
    table.change([(k, f"new {run}", run) for k in random.Random(run).sample(range(table.rows), 100)])
    return table.ingest()
