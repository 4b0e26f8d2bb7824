"""Merges against Delta's on the same data, by the table's size, and of a handful of changes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql import SparkSession

from lakehold.lake import Lake
from lakehold.tables.write_audit_publish import Publishing
from tests import recorded_files, transaction_files
from tests.benchmarks.figures import Figure, seconds

DELTA = "spark_catalog.delta.`{}`"


class Table:
    """A table of `(k bigint, v string, n bigint)` in a lake, and the recorded topic that feeds it."""

    def __init__(self, lake: Lake, directory: Path, name: str, rows: int, *, neighbours: int = 0) -> None:
        self.lake, self.name, self.rows = lake, name, rows
        self._file = directory / name / f"{name}.jsonl"
        self._offset = 0
        lake.sql(f"CREATE SOURCE {name} FROM FILES '{self._file.parent}' FORMAT JSON")
        for table in [name, *(f"{name}_{n}" for n in range(neighbours))]:
            lake.sql(
                f"CREATE TABLE bench.{table} (k BIGINT, v STRING, n BIGINT) FROM SOURCE {name} (TOPIC '{table}') ENVELOPE UPSERT"
            )
            self._write(table, [(0, "old", 0)])
        lake.ingest(name)
        # Spark writes the other rows, since only later batches are measured.
        rest = lake.spark.range(1, rows).selectExpr("id AS k", "concat('value ', id) AS v", "id % 97 AS n")
        rest.writeTo(f"bench.{name}").option("fanout-enabled", "true").append()

    def change(self, changes: Sequence[tuple[int, str | None, int]]) -> None:
        """Record changes; a change without a value deletes."""
        self._write(self.name, changes)

    def ingest(self) -> float:
        """Ingest the recorded changes; return the seconds from the call to the batch's commit."""
        started = perf_counter()
        batches = self.lake.batches_of(self.name, idle_ms=60_000)
        report = next(batches)
        took = perf_counter() - started
        assert report.tables, "the batch has the changes"
        assert not report.stopped, report.stopped
        assert not [r for r in batches if r.tables], "one batch has all changes"
        return took

    def _write(self, topic: str, changes: Sequence[tuple[int, str | None, int]]) -> None:
        lines = []
        for k, v, n in changes:
            value = None if v is None else json.dumps({"k": k, "v": v, "n": n}).encode()
            lines.append(recorded_files.line(topic, 0, self._offset, value, json.dumps({"k": k}).encode()))
            self._offset += 1
        recorded_files.append(self._file, lines)


def against_delta(lake: Lake, directory: Path, rows: int, runs: int) -> list[Figure]:
    """Merge 10,000 changes (8,000 updates, 1,000 deletes, 1,000 new keys, spread evenly) into `rows` rows."""
    spark = lake.spark
    ours = Table(lake, directory, "spread", rows)
    path = DELTA.format(directory / "delta")
    spark.range(rows).selectExpr("id AS k", "concat('value ', id) AS v", "id % 97 AS n").write.format("delta").save(
        str(directory / "delta")
    )
    spark.sql(
        f"ALTER TABLE {path} SET TBLPROPERTIES"
        " ('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true')"
    )
    merges, batches, floors = [], [], []
    for run in range(runs + _WARM_UP):
        changes = spread(rows, run)
        ours.change(changes)
        with _merge_timed() as took:
            batches.append(ours.ingest())
        merges.append(sum(took))
        floors.append(bare_merge(spark, path, changes))
    name = f"10,000 changes into {rows:,} rows"
    delta = "Delta's MERGE with change data feed"
    warm = slice(_WARM_UP, None)
    return [
        Figure(f"{name}: the merge", "s", tuple(merges[warm]), delta, tuple(floors[warm]), goal=0.15),
        Figure(f"{name}: plan to commit", "s", tuple(batches[warm]), delta, tuple(floors[warm]), goal=0.16),
    ]


def by_size(lake: Lake, directory: Path, small: int, large: int, runs: int) -> list[Figure]:
    """Merge 10,000 changes among the newest 5 % of keys into a small and a large table in turn."""
    tables = [Table(lake, directory, f"recent_{rows}", rows) for rows in (small, large)]
    took: dict[int, list[float]] = {small: [], large: []}
    for run in range(runs + 1):
        for table in tables:
            chosen = random.Random(run).sample(range(table.rows - table.rows // 20, table.rows), 10_000)
            table.change([(k, f"new {run}", run) for k in chosen])
            with _merge_timed() as seconds_of:
                table.ingest()
            took[table.rows].append(sum(seconds_of))
    return [
        Figure(
            f"10,000 recent changes into {large:,} rows",
            "s",
            tuple(took[large][1:]),
            f"the same into {small:,} rows",
            tuple(took[small][1:]),
            goal=2.5,
        )
    ]


def small_batches(lake: Lake, directory: Path, rows: int, neighbours: int, runs: int) -> list[Figure]:
    """Compare 100 changes, plan to commit, to one table of a source with no or many others, with one bare MERGE."""
    alone = Table(lake, directory, "alone", rows)
    among = Table(lake, directory, "among", rows, neighbours=neighbours)
    bare = Table(lake, directory, "bare", rows)
    took: dict[str, list[float]] = {"alone": [], "among": [], "bare": []}
    for run in range(runs + _WARM_UP):
        changes = [(k, f"new {run}", run) for k in random.Random(run).sample(range(rows), 100)]
        for table in (alone, among):
            table.change(changes)
            took[table.name].append(table.ingest())
        took["bare"].append(bare_merge(lake.spark, "bench.bare", changes))
    assert bare.rows == rows
    floors = tuple(took["bare"][_WARM_UP:])
    return [
        Figure(
            f"100 changes into {rows:,} rows, plan to commit{others}",
            "s",
            tuple(took[name][_WARM_UP:]),
            "one bare MERGE of them",
            floors,
            goal=2.0,
        )
        for name, others in (("alone", ""), ("among", f", {neighbours} other tables"))
    ]


def small_transactions(lake: Lake, directory: Path, rows: int, neighbours: int, runs: int) -> list[Figure]:
    """Compare 100 changes of one transaction, plan to commit, to one of many tables of a source, with one bare MERGE."""
    names = ["changed", "bare", *(f"neighbour_{n}" for n in range(neighbours - 1))]
    transaction_files.define(lake, directory, dict.fromkeys(names, "DEBEZIUM"))
    connector = transaction_files.Connector(directory)
    for name in names:
        connector.snapshot(name, [(0, 0)], is_last=name == names[-1])
    connector.transaction(("changed", 0, 1))
    lake.ingest("shop")
    rest = lake.spark.range(1, rows).selectExpr("id", "id % 97 AS v")
    for name in ("changed", "bare"):
        rest.writeTo(f"shop.{name}").option("fanout-enabled", "true").append()
    took: list[float] = []
    floors: list[float] = []
    for run in range(runs + _WARM_UP):
        changes = [(k, run) for k in random.Random(run).sample(range(1, rows), 100)]
        connector.transaction(*(("changed", k, v) for k, v in changes))
        started = perf_counter()
        report = next(lake.batches_of("shop", idle_ms=60_000))
        took.append(perf_counter() - started)
        assert [table.updated for table in report.tables] == [100], report
        source = pa.table([pa.array(column) for column in zip(*changes, strict=True)], ["id", "v"])
        floors.append(seconds(partial(_bare_update, lake.spark, source)))
    warm = slice(_WARM_UP, None)
    return [
        Figure(
            f"100 changes of one transaction into {rows:,} rows, plan to commit, {neighbours} other tables",
            "s",
            tuple(took[warm]),
            "one bare MERGE of them",
            tuple(floors[warm]),
            goal=1.5,
        )
    ]


def _bare_update(spark: SparkSession, source: pa.Table) -> None:
    spark.createDataFrame(source).createOrReplaceTempView("bare_changes")
    spark.sql("""MERGE INTO shop.bare t USING bare_changes s ON t.id = s.id
        WHEN MATCHED AND s.v IS NULL THEN DELETE
        WHEN MATCHED THEN UPDATE SET v = s.v
        WHEN NOT MATCHED AND s.v IS NOT NULL THEN INSERT (id, v) VALUES (s.id, s.v)""")


_WARM_UP = 5
"""Merges after which Java has compiled the code of a merge: the fifth takes half as long as the first."""


def spread(rows: int, run: int) -> list[tuple[int, str | None, int]]:
    """Generate 8,000 updates, 1,000 deletes and 1,000 new keys, spread evenly over a table of `rows` rows."""
    chosen = random.Random(run).sample(range(rows), 9_000)
    updates = [(k, f"new {run}", run) for k in chosen[:8_000]]
    deletes = [(k, None, 0) for k in chosen[8_000:]]
    return [*updates, *deletes, *((rows + run * 1_000 + n, f"new {run}", run) for n in range(1_000))]


def bare_merge(spark: SparkSession, table: str, changes: Sequence[tuple[int, str | None, int]]) -> float:
    """Merge changes that are rows already with one statement; return its seconds."""
    columns = [pa.array(column) for column in zip(*changes, strict=True)]
    source = pa.table(dict(zip(("k", "v", "n"), columns, strict=True)))
    statement = f"""MERGE INTO {table} t USING bare_changes s ON t.k = s.k
        WHEN MATCHED AND s.v IS NULL THEN DELETE
        WHEN MATCHED THEN UPDATE SET v = s.v, n = s.n
        WHEN NOT MATCHED AND s.v IS NOT NULL THEN INSERT (k, v, n) VALUES (s.k, s.v, s.n)"""

    def run() -> None:
        spark.createDataFrame(source).createOrReplaceTempView("bare_changes")
        spark.sql(statement)

    return seconds(run)


@contextmanager
def _merge_timed() -> Iterator[list[float]]:
    """Record the seconds of each MERGE inside, staged and published: the part of a batch that equals a bare MERGE."""
    took: list[float] = []
    original = Publishing.run

    def timed(*arguments: Any) -> None:
        started = perf_counter()
        original(*arguments)
        took.append(perf_counter() - started)

    with mock.patch.object(Publishing, "run", timed):
        yield took
