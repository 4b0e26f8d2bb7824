"""`make bench` measures this tree on this machine, each figure beside its floor in the same run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lakehold import artifacts
from lakehold.lake import Lake, connect
from tests.benchmarks import (
    airflow,
    changes,
    cluster,
    diffs,
    drain,
    growth,
    history,
    hold_commands,
    holds,
    incremental,
    joining,
    keyless,
    lag,
    long_life,
    many_tables,
    merges,
    shared_diffs,
    shared_topics,
    sources,
    verify,
)
from tests.benchmarks.figures import Figure, as_json, as_table
from tests.benchmarks.first_load import first_load

_SMALL = 0.01
"""The share of each size that `--quick` measures: enough to see that everything runs."""


class Benchmark(StrEnum):
    """The benchmarks that `docs/benchmarks.md` explains."""

    SMALL = "small"
    LOAD = "load"
    SIZE = "size"
    DIFF = "diff"
    DIFF_SIZE = "diff-size"
    DIFF_MANY = "diff-many"
    DIFF_SHARED = "diff-shared"
    PUBLISH_SHARED = "publish-shared"
    VIEWS = "views"
    HISTORY = "history"
    SNAPSHOT = "snapshot"
    CHANGES = "changes"
    NET = "net"
    DELTA = "delta"
    HOLDS = "holds"
    HOLD_COMMANDS = "hold-commands"
    LONG_LIFE = "long-life"
    TOPIC_SHARED = "topic-shared"
    SIDE_BY_SIDE = "side-by-side"
    DRAIN = "drain"
    LAG = "lag"
    FOLLOWED = "followed"
    JOINING = "joining"
    VERIFY = "verify"
    KEYLESS = "keyless"
    AIRFLOW = "airflow"
    GROWTH = "growth"
    CLUSTER = "cluster"
    INCREMENTAL = "incremental"
    SOURCES = "sources"


def main(
    *,
    only: Annotated[list[Benchmark] | None, typer.Option(help="All by default.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Measured runs of each, after those that warm up.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="A hundredth of the sizes; the figures mean nothing.")] = False,
    output: Annotated[Path | None, typer.Option(help="Takes the figures as JSON as well.")] = None,
) -> None:
    """Measure, print a table, and write JSON."""
    share = _SMALL if quick else 1.0

    def sized(count: int) -> int:
        return int(count * share)

    benchmarks: dict[Benchmark, Callable[[Lake, Path], list[Figure]]] = {
        Benchmark.SMALL: lambda lake, directory: [
            *merges.small_batches(lake, directory, sized(1_000_000), 20, runs * 2),
            *merges.small_transactions(lake, directory / "transactions", sized(1_000_000), 20, runs * 2),
        ],
        Benchmark.LOAD: lambda lake, _: first_load(lake, sized(1_000_000), min(runs, 3)),
        Benchmark.SIZE: lambda lake, directory: merges.by_size(
            lake, directory, max(sized(1_000_000), 250_000), sized(50_000_000), runs
        ),
        Benchmark.DIFF: lambda lake, directory: diffs.against_others(lake, directory, sized(10_000_000), runs),
        Benchmark.DIFF_SIZE: lambda lake, _: diffs.by_size(lake, max(sized(2_000_000), 100_000), runs),
        Benchmark.DIFF_MANY: lambda lake, directory: diffs.many_timestamps(lake, directory, sized(1_000_000), runs),
        Benchmark.DIFF_SHARED: lambda lake, directory: shared_diffs.read(
            lake, directory, sized(1_000_000), (1, 8, 32), runs
        ),
        Benchmark.PUBLISH_SHARED: lambda lake, directory: shared_diffs.published(
            lake, directory, sized(1_000_000), (1, 8, 32), runs
        ),
        Benchmark.VIEWS: lambda lake, directory: shared_diffs.refreshed(lake, directory, sized(1_000_000), (32,), runs),
        Benchmark.HISTORY: lambda lake, directory: history.ranges(lake, directory, sized(1_000_000), runs),
        Benchmark.SNAPSHOT: lambda lake, directory: diffs.first_snapshot(lake, directory, sized(10_000_000), 1),
        Benchmark.CHANGES: lambda lake, _: changes.in_queries(lake, sized(1_000_000), runs),
        Benchmark.NET: lambda lake, directory: changes.net(
            lake, directory, sized(1_000_000), max(sized(1_000), 10), min(runs, 3)
        ),
        Benchmark.DELTA: lambda lake, directory: merges.against_delta(lake, directory, sized(10_000_000), runs),
        Benchmark.HOLD_COMMANDS: lambda lake, directory: [
            *hold_commands.commands(lake, directory, sized(1_000_000), runs),
            *hold_commands.many(lake, runs),
        ],
        Benchmark.LONG_LIFE: lambda lake, directory: long_life.maintained(
            lake, directory, sized(1_000_000), sized(2_000)
        ),
        Benchmark.TOPIC_SHARED: lambda lake, _: shared_topics.tables_of_one_topic(lake, sized(300_000), 10, runs),
        Benchmark.SIDE_BY_SIDE: lambda lake, directory: many_tables.side_by_side(
            lake, directory, max(sized(100), 10), runs
        ),
        Benchmark.DRAIN: lambda lake, _: drain.drained(lake, max(sized(120_000), 4_000), 2, min(runs, 3)),
        Benchmark.LAG: lambda lake, _: lag.lags(lake, (10, 100, 200), max(sized(120), 15)),
        Benchmark.FOLLOWED: lambda lake, _: lag.lags(lake, (10,), max(sized(3_600), 15), " for an hour"),
        Benchmark.JOINING: lambda lake, _: joining.changes_meanwhile(lake, sized(200_000), min(runs, 3)),
        Benchmark.VERIFY: lambda lake, _: verify.equal_rows(lake, sized(10_000_000), min(runs, 3)),
        Benchmark.KEYLESS: lambda lake, directory: keyless.keyless(lake, directory, sized(5_000_000), runs),
        Benchmark.AIRFLOW: lambda _, directory: airflow.ingest_runs(directory, runs),
        Benchmark.CLUSTER: lambda lake, directory: cluster.cluster(
            lake,
            directory,
            cluster.Sizes(sized(10_000_000), sized(1_000_000), max(sized(100), 5), max(sized(50), 5)),
            runs,
        ),
        Benchmark.GROWTH: lambda lake, directory: growth.growth(lake, directory, quick=quick),
        Benchmark.INCREMENTAL: lambda lake, _: incremental.by_size(lake, max(sized(1_000_000), 50_000), runs),
        Benchmark.SOURCES: lambda _, directory: sources.lags(directory, max(sized(50), 5)),
        Benchmark.HOLDS: lambda lake, directory: holds.held_snapshots(
            lake, directory, sized(1_000_000), [sized(count) for count in (200, holds.A_DAY, 2_000, 10_000)], runs * 2
        ),
    }
    console = Console()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="lakehold-bench-") as name, _lake(Path(name)) as lake:
        for chosen in only or benchmarks:
            console.print(f"measuring: {chosen}", style="dim")
            found = benchmarks[chosen](lake, Path(name) / chosen)
            console.print(as_table(found))
            figures += found
    if len(only or benchmarks) > 1:
        console.print(as_table(figures))
    if output is not None:
        output.write_text(as_json(figures) + "\n")


def _lake(directory: Path) -> Lake:
    """Open a lake whose Spark session supports Delta and object stores as well."""
    jars = [jar for name in ("spark", "delta", "iceberg-aws") for jar in artifacts.jars(name)]
    extensions = (
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,io.delta.sql.DeltaSparkSessionExtension"
    )
    return connect(
        str(directory / "lake"),
        spark_driver_memory="6g",
        max_batch_records=2_000_000,
        spark_conf={
            "spark.jars": ",".join(str(jar) for jar in jars),
            "spark.sql.extensions": extensions,
            # Set as in a session for an object store: servers other than AWS's refuse these checksums.
            "spark.driver.extraJavaOptions": (
                "-Daws.requestChecksumCalculation=WHEN_REQUIRED -Daws.responseChecksumValidation=WHEN_REQUIRED"
            ),
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    )


if __name__ == "__main__":
    typer.run(main)
