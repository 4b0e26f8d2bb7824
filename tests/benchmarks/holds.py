"""The cost of a hold: batches and reads of a table that keeps thousands of snapshots, against a table that keeps none."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import orjson
from pyspark.sql import Row

from lakehold.iceberg import metadata_files
from lakehold.iceberg.sql_catalog import RememberingSqlCatalog
from lakehold.lake import Lake
from lakehold.times import now_ms
from tests.benchmarks.figures import Figure, seconds
from tests.benchmarks.merges import Table

A_DAY = 1_440
"""Snapshots that a hold of a day keeps of a table with a batch a minute."""

_WARM_UP = 6


def held_snapshots(lake: Lake, directory: Path, rows: int, counts: Sequence[int], runs: int) -> list[Figure]:
    """Compare 100 changes, plan to commit, and a row by its key, in tables with each of `counts` held snapshots and with none."""
    free = Table(lake, directory, "free", rows)
    held = {count: Table(lake, directory, f"held_{count}", rows) for count in counts}
    lake.ingest("free")
    for count, table in held.items():
        multiply(lake, f"bench.{table.name}", count)
        lake.sql(f"CREATE HOLD h{count} ON bench.{table.name} WITH (CHECK = 'off')")
    batches: dict[str, list[float]] = {}
    reads: dict[str, list[float]] = {}
    for run in range(runs + _WARM_UP):
        changes = [(k, f"new {run}", run) for k in random.Random(run).sample(range(rows), 100)]
        for table in (free, *held.values()):
            table.change(changes)
            batches.setdefault(table.name, []).append(table.ingest())
            query = f"SELECT n FROM bench.{table.name} WHERE k = {run}"
            reads.setdefault(table.name, []).append(seconds(partial(_collect, lake, query)))
    figures = []
    for count in counts:
        for what, took, goal in (
            (f"100 changes into {rows:,} rows", batches, 1.2 if count <= A_DAY else None),
            ("a row by its key", reads, None),
        ):
            figures.append(
                Figure(
                    f"{what}, {count:,} snapshots held",
                    "s",
                    tuple(took[f"held_{count}"][_WARM_UP:]),
                    "none held",
                    tuple(took["free"][_WARM_UP:]),
                    goal=goal,
                )
            )
    return figures


def _collect(lake: Lake, query: str) -> list[Row]:
    return lake.spark.sql(query).collect()


def multiply(lake: Lake, full_name: str, count: int) -> None:
    """Give a table `count` further snapshots, a millisecond apart, each with the files of its current one.

    The table looks as if as many batches had been merged, which would take hours. The measured work does not read these files.
    """
    catalog = lake.catalog
    assert isinstance(catalog, RememberingSqlCatalog)
    loaded = catalog.load_table(full_name)
    before = catalog.file_of(loaded.name(), loaded.metadata_location)
    snapshots = orjson.loads(b"[" + before.snapshots + b"]")
    last = next(s for s in snapshots if s["snapshot-id"] == loaded.metadata.current_snapshot_id)
    fed = next(s for s in reversed(snapshots) if "lakehold.timestamp" in s["summary"])
    first_ms = int(fed["summary"]["lakehold.timestamp"])
    parent, sequence_number = last["snapshot-id"], before.fields["last-sequence-number"]
    log = list(before.fields["snapshot-log"])
    for number in range(1, count + 1):
        timestamp_ms = max(first_ms, last["timestamp-ms"]) + number
        made = {
            **last,
            "snapshot-id": random.getrandbits(62),
            "parent-snapshot-id": parent,
            "sequence-number": sequence_number + number,
            "timestamp-ms": timestamp_ms,
            "summary": {**fed["summary"], "lakehold.timestamp": str(timestamp_ms)},
        }
        snapshots.append(made)
        parent = made["snapshot-id"]
        log.append({"timestamp-ms": timestamp_ms, "snapshot-id": parent})
    while now_ms() <= timestamp_ms:  # batches must be later than the table's snapshots
        time.sleep(0.1)
    fields = {
        **before.fields,
        "snapshot-log": log,
        "current-snapshot-id": parent,
        "last-sequence-number": sequence_number + count,
        "last-updated-ms": now_ms(),
        "refs": {**before.fields["refs"], "main": {"snapshot-id": parent, "type": "branch"}},
    }
    location = before.followed_by(before.fields).location
    text = orjson.dumps(snapshots)[1:-1]
    metadata_files.write(loaded.io, metadata_files.MetadataFile(location, fields, text, before.metadata, {}, {}))
    catalog.replace(loaded, metadata_files.read(loaded.io, location))
