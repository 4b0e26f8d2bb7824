"""History tables: changes of a table merged into the ranges of its rows, against one bare MERGE of them."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

from lakehold.lake import Lake
from tests.benchmarks.figures import Figure, seconds
from tests.benchmarks.merges import Table, bare_merge

_CHANGES = 1_000
_WARM_UP = 3


def ranges(lake: Lake, directory: Path, rows: int, runs: int) -> list[Figure]:
    """Publish 1,000 updates of a table of `rows` rows to its history: each ends a range and begins another one."""
    table = Table(lake, directory, "tracked", rows)
    Table(lake, directory, "untracked", rows)
    lake.sql("CREATE SUBSCRIPTION history INTO bench.history AS SUBSCRIBE bench.tracked ENVELOPE HISTORY (KEY (k))")
    # The rows that Spark added can be read from the next batch on.
    table.change([(0, "new", 0)])
    table.ingest()
    lake.publish("history")
    assert lake.sql("SELECT count(*) FROM bench.history").rows == [(rows + 1,)]
    took, floors = list[float](), list[float]()
    for run in range(runs + _WARM_UP):
        changes = [(k, f"new {run}", run) for k in random.Random(run).sample(range(rows), _CHANGES)]
        table.change(changes)
        table.ingest()
        took.append(seconds(partial(_published, lake)))
        floors.append(bare_merge(lake.spark, "bench.untracked", changes))
    name = f"{_CHANGES:,} changes into a history table of {rows:,} rows, published"
    warm = slice(_WARM_UP, None)
    return [Figure(name, "s", tuple(took[warm]), "one bare MERGE of them", tuple(floors[warm]), goal=None)]


def _published(lake: Lake) -> None:
    assert sum(report.rows for report in lake.publish("history")) == _CHANGES
