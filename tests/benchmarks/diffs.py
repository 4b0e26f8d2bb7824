"""Reads of changes: one diff against Delta's and Iceberg's own, by the table's size, many timestamps, and a first snapshot."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyspark.sql import SparkSession

from lakehold import connect
from lakehold.cli.command_output import CsvOutput
from lakehold.lake import Lake
from lakehold.subscribe.row_values import tuples
from tests.benchmarks.figures import Figure, seconds
from tests.benchmarks.merges import DELTA, Table, bare_merge, spread

_WARM_UP = 5
DIFF = "SUBSCRIBE {} ENVELOPE DEBEZIUM (KEY (k)) WITH (SNAPSHOT = false) AS OF {} UP TO {}"


def against_others(lake: Lake, directory: Path, rows: int, runs: int) -> list[Figure]:
    """Compare the diff of 10,000 changes, with before and after images, with Delta's change feed and Iceberg's changelog view."""
    spark = lake.spark
    ours = Table(lake, directory, "changed", rows)
    path = DELTA.format(directory / "changed_delta")
    spark.range(rows).selectExpr(*_COLUMNS).write.format("delta").save(str(directory / "changed_delta"))
    spark.sql(
        f"ALTER TABLE {path} SET TBLPROPERTIES"
        " ('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"CREATE TABLE bench.twin USING iceberg AS SELECT {', '.join(_COLUMNS)} FROM range({rows})")
    changes = spread(rows, 0)
    ours.change(changes)
    ours.ingest()
    bare_merge(spark, path, changes)
    bare_merge(spark, "bench.twin", changes)
    before, after = _last_two(lake, ours.name)
    version = spark.sql(f"DESCRIBE HISTORY {path} LIMIT 1").collect()[0]["version"]
    found: dict[str, list[float]] = {"ours": [], "delta": [], "view": []}
    for run in range(runs + _WARM_UP):
        found["ours"].append(answered(partial(rows_of, lake, DIFF.format("bench.changed", before, after + 1)), 10_000))
        feed = f"SELECT * FROM table_changes('delta.`{directory / 'changed_delta'}`', {version}, {version})"
        found["delta"].append(answered(spark.sql(feed.replace("delta.`", "spark_catalog.delta.`")).collect, 18_000))
        if run < 2:
            found["view"].append(answered(lambda: _changelog(spark), 18_000))
    name = f"diff of 10,000 changes of {rows:,} rows"
    warm = slice(_WARM_UP, None)
    return [
        Figure(name, "s", tuple(found["ours"][warm]), "Delta's table_changes", tuple(found["delta"][warm]), goal=1.0),
        Figure(
            name,
            "s",
            tuple(found["ours"][warm]),
            "create_changelog_view, copy-on-write",
            tuple(found["view"]),
            goal=0.05,
        ),
    ]


def by_size(lake: Lake, rows: int, runs: int) -> list[Figure]:
    """Compare the diff of 10,000 changes in the newest file of a table with that of a table ten times as large."""
    lake.sql("CREATE NAMESPACE IF NOT EXISTS bench")
    found: dict[int, list[float]] = {}
    times = {}
    for size in (rows, rows * 10):
        name = f"bench.sized_{size}"
        lake.sql(
            f"CREATE TABLE {name} (k BIGINT, v STRING, n BIGINT) USING iceberg"
            " TBLPROPERTIES ('format-version' = '3', 'write.update.mode' = 'merge-on-read')"
        )
        for start in range(0, size, rows // 2):
            part = lake.spark.range(start, start + rows // 2, 1, 1).selectExpr(*_COLUMNS)
            part.writeTo(name).append()
        step = rows // 2 // 10_000
        lake.sql(f"UPDATE {name} SET v = 'new' WHERE k >= {size - rows // 2} AND k % {step} = 0")
        times[size], found[size] = versions(lake, name)[-2:], []
    for _ in range(runs + _WARM_UP):
        for size, (before, after) in times.items():
            statement = DIFF.format(f"bench.sized_{size}", before, after + 1)
            found[size].append(answered(partial(rows_of, lake, statement), 10_000))
    warm = slice(_WARM_UP, None)
    return [
        Figure(
            f"diff of 10,000 changes in one file of {rows * 10:,} rows",
            "s",
            tuple(found[rows * 10][warm]),
            f"the same of {rows:,} rows",
            tuple(found[rows][warm]),
            goal=1.3,
        )
    ]


def many_timestamps(lake: Lake, directory: Path, rows: int, runs: int) -> list[Figure]:
    """Compare a SUBSCRIBE to a hundred timestamps of 100 changes with one to the last timestamp: repeated, and in a new lake."""
    table = Table(lake, directory, "ticking", rows)
    for run in range(100):
        table.change([(k, f"new {run}", run) for k in random.Random(run).sample(range(rows), 100)])
        table.ingest()
    times = versions(lake, "bench.ticking")
    statements = {count: DIFF.format("bench.ticking", times[-1 - count], times[-1] + 1) for count in (1, 100)}
    with like(lake, shared_diffs_max_bytes=0) as forgetful:
        cached, uncached = (_warm_times(one, statements, runs) for one in (lake, forgetful))
    here, far = (_first_times(lake, statements, runs, **settings) for settings in ({}, _FAR))
    return [
        Figure(f"100 timestamps in one SUBSCRIBE, {how}", "s", tuple(took[100]), "one timestamp", tuple(took[1]), 5.0)
        for how, took in (
            ("again", cached),
            ("again, without diffs that were kept", uncached),
            ("the first time", here),
            ("the first time, from storage that answers after 20 ms", far),
        )
    ]


class FarFileIO(PyArrowFileIO):
    """Local files that answer as slowly as an object store's."""

    def new_input(self, location: str) -> PyArrowFile:
        sleep(_FAR_MS / 1000)
        return super().new_input(location)


_FAR_MS = 20
_FAR = {"catalog_properties": {"py-io-impl": f"{__name__}.{FarFileIO.__name__}"}}


def _warm_times(lake: Lake, statements: Mapping[int, str], runs: int) -> dict[int, list[float]]:
    """Measure each statement, keyed by its number of timestamps, in a lake that answered it before."""
    found: dict[int, list[float]] = {count: [] for count in statements}
    for _ in range(runs + _WARM_UP):
        for count, statement in statements.items():
            found[count].append(answered(partial(rows_of, lake, statement), 100 * count))
    return {count: took[_WARM_UP:] for count, took in found.items()}


def _first_times(lake: Lake, statements: Mapping[int, str], runs: int, **settings: Any) -> dict[int, list[float]]:
    """Measure each statement, keyed by its number of timestamps, in a lake that was just opened."""
    found: dict[int, list[float]] = {count: [] for count in statements}
    for _ in range(runs):
        for count, statement in statements.items():
            with like(lake, **settings) as fresh:
                fresh.sql("SHOW TABLES")
                found[count].append(answered(partial(rows_of, fresh, statement), 100 * count))
    return found


_OF_THE_PLACE = ("warehouse", "catalog_uri", "catalog_name", "catalog_properties")


def like(lake: Lake, **settings: Any) -> Lake:
    """Open the lake again, with other settings."""
    same = {name: getattr(lake.settings, name) for name in _OF_THE_PLACE}
    return connect(**{**same, **settings}, spark=lake.spark)


def first_snapshot(lake: Lake, directory: Path, rows: int, runs: int) -> list[Figure]:
    """Compare a first snapshot written as CSV with a plain scan by Spark, kept whole in memory and written by the same writer."""
    directory.mkdir(parents=True)
    lake.sql(
        "CREATE NAMESPACE IF NOT EXISTS bench; CREATE TABLE bench.whole (k BIGINT, v STRING, n BIGINT) USING iceberg"
    )
    lake.spark.range(rows).selectExpr(*_COLUMNS).writeTo("bench.whole").append()
    found: dict[str, list[float]] = {"ours": [], "spark": []}
    for _ in range(runs):
        found["ours"].append(rows / seconds(lambda: _write_snapshot(lake, directory / "ours.csv")))
        found["spark"].append(rows / seconds(lambda: _write_scan(lake, directory / "spark.csv")))
    return [
        Figure(
            f"first snapshot of {rows:,} rows to CSV",
            "records/s",
            tuple(found["ours"]),
            "a plain Spark scan to CSV",
            tuple(found["spark"]),
            goal=0.5,
        )
    ]


_COLUMNS = ("id AS k", "concat('value ', id) AS v", "id % 97 AS n")


def answered(answer: Callable[[], Sequence[object]], rows: int) -> float:
    """Measure an answer of at least `rows` rows; return its seconds."""
    started = perf_counter()
    found = answer()
    took = perf_counter() - started
    assert len(found) >= rows, f"{len(found)} rows"
    return took


def rows_of(lake: Lake, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement's result."""
    return lake.sql(statement).rows


def _changelog(spark: SparkSession) -> list[Any]:
    first, last = (
        row[0] for row in spark.sql("SELECT snapshot_id FROM bench.twin.snapshots ORDER BY committed_at").collect()
    )
    spark.sql(
        "CALL lake.system.create_changelog_view(table => 'bench.twin', changelog_view => 'twin_changes', identifier_columns =>"
        f" array('k'), options => map('start-snapshot-id', '{first}', 'end-snapshot-id', '{last}'))"
    )
    return spark.sql("SELECT * FROM twin_changes").collect()


def versions(lake: Lake, name: str) -> list[int]:
    """Return the timestamps of a table's snapshots, in order."""
    stamp = "coalesce(summary['lakehold.timestamp'], unix_millis(committed_at))"
    return [int(row[0]) for row in lake.sql(f"SELECT {stamp} FROM {name}.snapshots ORDER BY committed_at").rows]


def _last_two(lake: Lake, name: str) -> tuple[int, int]:
    *_, before, after = versions(lake, f"bench.{name}")
    return before, after


def _write_snapshot(lake: Lake, path: Path) -> None:
    with path.open("w") as file:
        output = CsvOutput(file, file)
        opened = lake.open_subscription("SUBSCRIBE bench.whole")
        for chunk in opened.chunks():
            output.part(opened.columns, tuples(chunk.rows))


def _write_scan(lake: Lake, path: Path) -> None:
    with path.open("w") as file:
        output = CsvOutput(file, file)
        for batch in lake.spark.table("bench.whole").toArrow().to_batches():
            output.part(("k", "v", "n"), tuples(pa.Table.from_batches([batch])))
