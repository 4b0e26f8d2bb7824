"""Tables without a key: a batch into one, against the same batch into a table with a key."""

from __future__ import annotations

import random
from pathlib import Path
from time import perf_counter
from typing import Any

from lakehold.lake import Lake
from tests.benchmarks.figures import Figure
from tests.debezium_messages import Topic

_CHANGES = 10_000
_WARM_UP = 2
_COLUMNS: dict[str, dict[str, Any]] = {"k": {"type": "int64"}, "v": {"type": "string"}, "n": {"type": "int64"}}


class _Table:
    """A table of `(k bigint, v string, n bigint)` whose rows are all different, and the topic that changes it."""

    def __init__(self, lake: Lake, directory: Path, name: str, rows: int, *, has_keys: bool) -> None:
        self._lake, self._name, self._directory = lake, name, directory / name
        self._directory.mkdir(parents=True)
        key = ("k",) if has_keys else ()
        self._topic = Topic(name, dict(_COLUMNS), key=key, has_keys=has_keys, has_orders=True)
        self._rows = rows
        self._changed: dict[int, dict[str, Any] | None] = {}
        self._next = rows
        lake.sql(f"CREATE SOURCE {name} FROM FILES '{self._directory}' FORMAT JSON")
        lake.sql(f"CREATE TABLE bench.{name} FROM SOURCE {name} (TOPIC '{name}') ENVELOPE DEBEZIUM")
        self._topic.snapshot([self._row(0)])
        self._topic.write(self._directory)
        lake.ingest(name)
        # The rest of the rows comes from elsewhere: what is measured is what follows.
        rest = lake.spark.range(1, rows).selectExpr("id AS k", "concat('value ', id) AS v", "id % 97 AS n")
        rest.writeTo(f"bench.{name}").option("fanout-enabled", "true").append()

    def change(self, run: int) -> None:
        """Write a batch: 8 of 10 changes are updates, one is a delete, one adds a row; of rows all over the table."""
        chosen = random.Random(run).sample(range(self._rows), _CHANGES)
        for number, k in enumerate(k for k in chosen if self._changed.get(k, {}) is not None):
            before = self._row(k)
            match number % 10:
                case 0:
                    self._topic.delete(before, tombstone=False)
                    self._changed[k] = None
                case 1:
                    self._topic.create({"k": self._next, "v": "added", "n": run})
                    self._next += 1
                case _:
                    self._changed[k] = after = {"k": k, "v": f"new {run}", "n": run}
                    self._topic.update(before, after)
        self._topic.write(self._directory)

    def ingest(self) -> float:
        """Bring the batch into the table; returns the seconds from the call to its commit."""
        started = perf_counter()
        reports = self._lake.ingest(self._name)
        took = perf_counter() - started
        assert not any(report.stopped for report in reports)
        return took

    def _row(self, k: int) -> dict[str, Any]:
        return self._changed.get(k) or {"k": k, "v": f"value {k}", "n": k % 97}


def keyless(lake: Lake, directory: Path, rows: int, runs: int) -> list[Figure]:
    """10,000 changes, spread evenly, into `rows` rows without a key and with one, in turn."""
    tables = [_Table(lake, directory, name, rows, has_keys=name == "keyed") for name in ("keyless", "keyed")]
    took: list[list[float]] = [[], []]
    for run in range(runs + _WARM_UP):
        for table, seconds in zip(tables, took, strict=True):
            table.change(run)
            seconds.append(table.ingest())
    without, with_key = (tuple(seconds[_WARM_UP:]) for seconds in took)
    name = f"10,000 changes into {rows:,} rows without a key"
    return [Figure(name, "s", without, "the same into a table with a key", with_key, goal=2.0)]
