"""`CHANGES` in a query of Spark's against a scan of as many rows, and NET against the SUBSCRIBE of each timestamp."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lakehold.lake import Lake, connect
from tests.benchmarks.figures import Figure, seconds
from tests.benchmarks.merges import Table

_COLUMNS = ("id AS k", "concat('value ', id) AS v", "id % 97 AS n")
_WARM_UP = 2
_SUMS = "SELECT count(*), sum(length(v)), sum(n), max(k) FROM {}"


def in_queries(lake: Lake, rows: int, runs: int) -> list[Figure]:
    """Compare queries over the changes that added `rows` rows, and that updated half as many, with scans of `rows` rows."""
    lake.sql(
        "CREATE NAMESPACE IF NOT EXISTS bench;"
        "CREATE TABLE bench.scanned (k BIGINT, v STRING, n BIGINT) USING iceberg"
        " TBLPROPERTIES ('format-version' = '3', 'write.update.mode' = 'merge-on-read');"
        "INSERT INTO bench.scanned VALUES (-1, 'first', 0)"
    )
    lake.spark.range(rows).selectExpr(*_COLUMNS).writeTo("bench.scanned").append()
    lake.sql("UPDATE bench.scanned SET v = concat(v, ' new') WHERE k % 2 = 0")
    first, added, updated = _versions(lake, "bench.scanned")
    kinds = {
        "added": f"CHANGES(bench.scanned AS OF {first} UP TO {added + 1})",
        "changed by an update": f"CHANGES(bench.scanned AS OF {added} UP TO {updated + 1})",
        "changed by an update, ENVELOPE DEBEZIUM": (
            f"(SELECT k, after_v AS v, after_n AS n FROM CHANGES(bench.scanned AS OF {added} UP TO {updated + 1},"
            " ENVELOPE DEBEZIUM (KEY (k))))"
        ),
    }
    scan = _rates(lake, "bench.scanned", rows, runs)
    return [
        Figure(
            f"CHANGES of {rows:,} rows {kind}, summed by Spark",
            "records/s",
            tuple(_rates(lake, relation, rows, runs)),
            "a Spark scan of as many, summed",
            tuple(scan),
            goal=0.5,
        )
        for kind, relation in kinds.items()
    ]


def net(lake: Lake, directory: Path, rows: int, timestamps: int, runs: int) -> list[Figure]:
    """Compare NET over many timestamps of 100 changes with a SUBSCRIBE to all of them, each in a lake that was just opened."""
    table = Table(lake, directory, "moving", rows)
    for run in range(timestamps):
        table.change([(k, f"new {run}", run) for k in random.Random(run).sample(range(rows), 100)])
        table.ingest()
    times = _versions(lake, "bench.moving")
    first, last = times[-1 - timestamps], times[-1] + 1
    statements: dict[str, Callable[[Lake], object]] = {
        "net": lambda one: one.changes(
            "bench.moving", first, last, envelope="debezium", key=["k"], net=True
        ).read_all(),
        "steps": lambda one: one.sql(
            f"SUBSCRIBE bench.moving ENVELOPE DEBEZIUM (KEY (k)) WITH (SNAPSHOT = false) AS OF {first} UP TO {last}"
        ),
    }
    found: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(runs):
        for name, read in statements.items():
            with _again(lake) as fresh:
                fresh.sql("SHOW TABLES")
                found[name].append(seconds(partial(read, fresh)))
    return [
        Figure(
            f"NET over {timestamps:,} timestamps of 100 changes",
            "s",
            tuple(found["net"]),
            "SUBSCRIBE to each timestamp",
            tuple(found["steps"]),
            goal=0.1,
        )
    ]


def _rates(lake: Lake, relation: str, rows: int, runs: int) -> list[float]:
    statement = _SUMS.format(relation)
    return [rows / seconds(lambda: lake.sql(statement)) for _ in range(runs + _WARM_UP)][_WARM_UP:]


def _again(lake: Lake) -> Lake:
    same = {name: getattr(lake.settings, name) for name in ("warehouse", "catalog_uri", "catalog_name")}
    return connect(**same, spark=lake.spark)


def _versions(lake: Lake, name: str) -> list[int]:
    stamp = "coalesce(summary['lakehold.timestamp'], unix_millis(committed_at))"
    return [int(row[0]) for row in lake.sql(f"SELECT {stamp} FROM {name}.snapshots ORDER BY committed_at").rows]
