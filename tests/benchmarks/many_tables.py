"""Batches that change many tables of one source, against a batch that changes one of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from lakehold.lake import Lake
from tests import recorded_files
from tests.benchmarks.figures import Figure

_WARM_UP = 3
_ROWS = 1_000
_CHANGES = 100


class ManyTables:
    """A source with `count` recorded topics, each of which feeds a table of 1,000 rows."""

    def __init__(self, lake: Lake, directory: Path, count: int) -> None:
        self._lake, self._file, self._offset = lake, directory / "many" / "many.jsonl", 0
        self._topics = [f"t{number}" for number in range(count)]
        lake.sql(f"CREATE SOURCE many FROM FILES '{self._file.parent}' FORMAT JSON")
        for topic in self._topics:
            lake.sql(
                f"CREATE TABLE many.{topic} (k BIGINT, v STRING) FROM SOURCE many (TOPIC '{topic}') ENVELOPE UPSERT"
            )
        self._write(self._topics, range(_ROWS), "old")
        lake.ingest("many")

    def ingest(self, changed: int, run: int) -> float:
        """Change 100 rows in each of some tables; return the seconds from the call to the batch's commit."""
        self._write(self._topics[:changed], range(run, _ROWS, _ROWS // _CHANGES), f"new {run}")
        started = perf_counter()
        report = next(self._lake.batches_of("many", idle_ms=60_000))
        took = perf_counter() - started
        assert len(report.tables) == changed
        assert not report.stopped, report.stopped
        return took

    def _write(self, topics: Sequence[str], keys: Sequence[int], value: str) -> None:
        lines = []
        for topic in topics:
            for k in keys:
                row = json.dumps({"k": k, "v": value}).encode()
                lines.append(recorded_files.line(topic, 0, self._offset, row, json.dumps({"k": k}).encode()))
                self._offset += 1
        recorded_files.append(self._file, lines)


def side_by_side(lake: Lake, directory: Path, count: int, runs: int) -> list[Figure]:
    """Change a tenth and a half of `count` tables in one batch, in turn with one of them."""
    tables = ManyTables(lake, directory, count)
    goals = {count // 10: 4.0, count // 2: 15.0}
    took: dict[int, list[float]] = {1: [], **{changed: [] for changed in goals}}
    for run in range(runs + _WARM_UP):
        for changed, found in took.items():
            found.append(tables.ingest(changed, run))
    floor = tuple(took[1][_WARM_UP:])
    return [
        Figure(
            f"100 changes in each of {changed} of {count} tables, plan to commit",
            "s",
            tuple(took[changed][_WARM_UP:]),
            "one of them",
            floor,
            goal=goal,
        )
        for changed, goal in goals.items()
    ]
