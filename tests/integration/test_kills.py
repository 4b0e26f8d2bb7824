"""Real `lakehold ingest` processes are killed at each failpoint of the protocol: the lake equals one without any kill.

Processes that are never killed feed one lake. The same messages feed another lake, whose processes die one after the other at
their failpoints. Each process goes on with the batch that the one before left open.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from lakehold.iceberg.data_tables import SnapshotState
from lakehold.lake import Lake, connect
from lakehold.model.high_water_marks import HighWaterMarks
from lakehold.session import SHORT_RUN_OPTIONS
from lakehold.times import now_ms
from tests import recorded_files
from tests.catalog_servers import s3_server
from tests.debezium_messages import Topic
from tests.lakehold_process import IngestProcesses
from tests.s3_server import S3Server
from tests.waiting import wait_for

__all__ = ["s3_server"]

pytestmark = pytest.mark.spark

KILLED = -signal.SIGKILL
LEASE_MS = 3_000
SETTINGS: Mapping[str, str | int] = {
    "max_batch_records": 8,
    "lease_ms": LEASE_MS,
    "lease_renew_ms": 500,
    "buckets": 2,
    "tables_at_once": 1,
}
"""Four messages of each topic are a batch. Tables are merged one by one, which determines where each process dies."""

TABLES = ("s.customers", "s.orders")

BEFORE_THE_SECOND_SNAPSHOT = (
    "before-intent",  # the messages have been read and decoded
    "after-intent",
    "after-evolution",  # the first batch is resumed: the table exists, and is empty
    "after-errors:4",  # second batch, second table: one error is recorded and one healed; the first table is merged
    "after-evolution:3",  # third batch, first table: columns are added and widened, and no row has them
    "before-merge:3",  # fourth batch: nothing of it is written
    "before-publish",  # ... the rows of one table are staged
    "after-merge",  # ... one of two tables is merged
    "after-table",  # ... this table is published, and the other has not begun
    "after-commit",
)
"""The failpoints where the processes die, one after the other; `:n` is the n-th pass, so in a later batch or table."""

IN_THE_SECOND_SNAPSHOT = (
    "after-merge",  # the rows of the re-snapshot are merged, and the rows that it lacks still exist
    "before-commit",
)


class Shop:
    """The messages of two tables, and a lake that these feed."""

    def __init__(
        self, directory: Path, lake_name: str, place: Mapping[str, Any] | None = None, **settings: str | int
    ) -> None:
        self.topics = directory / "topics"
        in_directory = {"warehouse": str(directory / lake_name)}
        place = in_directory if place is None else place
        self.lake = connect(**place)
        of_place = {name: value if isinstance(value, str) else json.dumps(value) for name, value in place.items()}
        self.processes = IngestProcesses(directory / lake_name, "shop", {**SETTINGS, **of_place, **settings})

    def define(self) -> None:
        self.lake.sql(f"""
            CREATE SOURCE shop FROM FILES '{self.topics}' FORMAT JSON;
            CREATE TABLE s.customers FROM SOURCE shop (TOPIC 'customers') ENVELOPE DEBEZIUM;
            CREATE TABLE s.orders FROM SOURCE shop (TOPIC 'orders') ENVELOPE DEBEZIUM UPSERT
        """)

    def wait_for_lease(self) -> None:
        """Wait until the source is free: a killed process keeps its lease until it expires."""
        wait_for(self._is_free, within_s=LEASE_MS / 1_000 + 10)

    def _is_free(self) -> bool:
        readers = self.lake.batches.readers("shop").values()
        return all(r.lease is None or r.lease.until_ms <= now_ms() for r in readers)

    def ingest(self, **settings: str | int) -> None:
        self.wait_for_lease()
        code, output = self.processes.run(**settings)
        assert code == 0, output

    def killed(self, point: str, **settings: str | int) -> None:
        self.wait_for_lease()
        code, output = self.processes.run(kill_at=point, **settings)
        assert code == KILLED, f"not killed {point}: {output}"


@pytest.fixture
def customers() -> Topic:
    return Topic("customers", {"id": {"type": "int64"}, "name": {"type": "string"}, "n": {"type": "int32"}})


def customer(id_: int, name: str, n: int = 0, **more: Any) -> dict[str, Any]:
    return {"id": id_, "name": name, "n": n, **more}


def write_history(directory: Path, customers: Topic) -> None:
    """Write inserts, updates, deletes, repetitions, bad messages, a malformed line, added and widened columns."""
    customers.snapshot([customer(i, "a") for i in (1, 2, 3, 4)])
    customers.create(customer(5, "e"))
    customers.update(customer(1, "a"), customer(1, "b"))
    customers.delete(customer(2, "a"))
    customers.columns |= {"n": {"type": "int64"}, "city": {"type": "string"}}
    customers.create(customer(6, "f", 2**40, city="Ulm"))
    customers.update(customer(3, "a", city=None), customer(3, "c", 1, city="Bonn"))
    customers.resend(2)
    customers.delete(customer(4, "a", city=None), tombstone=False)
    customers.create(customer(7, "g", city=None))
    customers.update(customer(7, "g", city=None), customer(7, "h", city=None))
    customers.create(customer(4, "again", city="Kiel"))
    customers.write(directory)

    orders = Topic("orders", {"id": {"type": "string"}, "total": {"type": "int32"}})

    def order(id_: str, total: int | None, **more: Any) -> dict[str, Any]:
        return {"id": id_, "total": total, **more}

    bad_key = orders._key(order("x", None))
    orders.snapshot([order("a", 1), order("b", 2)])
    orders.raw(bad_key, b"not json")
    orders.create(order("c", 3))
    orders.create(order("x", 9))
    orders.update(order("a", 1), order("a", None))
    orders.raw(bad_key, b"{}")
    orders.raw(None, b'{"no":"key"}')
    orders.delete(order("b", 2))
    orders.columns["note"] = {"type": "string"}
    orders.create(order("d", 4, note="first"))
    orders.update(order("c", 3), order("c", 33, note="second"))
    orders.update(order("x", 9), order("x", 10, note=None))
    orders.delete(order("a", None, note=None))
    orders.create(order("b", 22, note="again"))
    orders.write(directory)
    recorded_files.append(directory / "orders.jsonl", ["this line is no message"])


def write_second_snapshot(directory: Path, customers: Topic) -> None:
    """Write a re-snapshot that lacks customer 6, who must be deleted."""
    customers.lsn, customers.last_commit = 50_000, None
    customers.snapshot([customer(i, "resnapshotted", city=None) for i in (1, 3, 4)])
    customers.create(customer(8, "after", city=None))
    customers.write(directory)


def contents(lake: Lake) -> dict[str, Any]:
    """Return all that ingesting leaves, with timestamps as numbers from 1, but no estimates or batches without records."""
    history = [batch for batch in lake.batches.history("shop") if batch.records]
    numbers = {batch.mz_timestamp: number for number, batch in enumerate(history, start=1)}
    progress = lake.batches.readers("shop")["main"].tables
    return {
        "rows": {name: sorted(_rows(lake, name), key=repr) for name in TABLES},
        "errors": sorted(
            (
                {
                    **error,
                    "mz_timestamp": numbers[error["mz_timestamp"]],
                    "healed_at": numbers.get(error["healed_at"]),
                }
                for error in _rows(lake, "mz_catalog.mz_source_errors")
            ),
            key=repr,
        ),
        "open_errors": {name: progress[name].open_errors for name in TABLES},
        "marks": {name: _high_water_marks(progress[name].high_water_marks, _history(lake, name)) for name in TABLES},
        "readable_from": {name: numbers[progress[name].since_ms or 0] for name in TABLES},
        "snapshots": {name: _snapshots(lake, name, numbers) for name in TABLES},
        "batches": [
            (
                batch.reader,
                batch.start,
                batch.end,
                {name: replace(change, snapshot_id=None) for name, change in batch.tables.items()},
                batch.records,
            )
            for batch in history
        ],
        "position": lake.batches.readers("shop")["main"].position,
    }


def _rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.catalog.load_table(table).scan().to_arrow().to_pylist()
    return rows


def _snapshots(lake: Lake, table: str, numbers: Mapping[int, int]) -> list[tuple[int, str, str, HighWaterMarks]]:
    """Return the batch, step, offsets and high-water marks of each snapshot, oldest first."""
    history = _history(lake, table)
    return [
        (
            numbers[int(snapshot.summary["lakehold.timestamp"])],
            snapshot.summary["lakehold.step"],
            snapshot.summary["lakehold.offsets"],
            _high_water_marks(HighWaterMarks.from_json(snapshot.summary["lakehold.marks"]), history),
        )
        for snapshot in history
    ]


def _history(lake: Lake, table: str) -> list[SnapshotState]:
    state = lake.tables.table_state(table)
    assert state is not None
    return list(reversed(state.history))


def _high_water_marks(high_water_marks: HighWaterMarks, history: Sequence[SnapshotState]) -> HighWaterMarks:
    """Replace the sequence number in the high-water marks, which killed tries use up, by its index in the table's history."""
    if high_water_marks.snapshot is None or high_water_marks.snapshot.replaces_through is None:
        return high_water_marks
    sequence = [snapshot.sequence_number for snapshot in history]
    through = sequence.index(high_water_marks.snapshot.replaces_through)
    return replace(high_water_marks, snapshot=replace(high_water_marks.snapshot, replaces_through=through))


def assert_each_batch_once(found: Mapping[str, Any]) -> None:
    """Assert that no table has two snapshots of a batch and step, and that no message is an error twice."""
    for name in TABLES:
        of_batches = Counter((batch, step) for batch, step, _, _ in found["snapshots"][name])
        assert set(of_batches.values()) == {1}, name
    messages = Counter((e["topic"], e["partition"], e["offset"]) for e in found["errors"])
    assert set(messages.values()) == {1}


def test_an_ingest_killed_at_every_failpoint_ends_with_the_same_lake(
    spark_connect: str, tmp_path: Path, customers: Topic
) -> None:
    undisturbed, disturbed = (Shop(tmp_path, name, spark_remote=spark_connect) for name in ("undisturbed", "disturbed"))
    for shop in (undisturbed, disturbed):
        shop.define()

    write_history(tmp_path / "topics", customers)
    undisturbed.ingest()
    for point in BEFORE_THE_SECOND_SNAPSHOT:
        disturbed.killed(point)
    disturbed.ingest()

    write_second_snapshot(tmp_path / "topics", customers)
    undisturbed.ingest()
    for point in IN_THE_SECOND_SNAPSHOT:
        disturbed.killed(point)
    disturbed.ingest()

    expected, found = contents(undisturbed.lake), contents(disturbed.lake)
    assert [row["id"] for row in expected["rows"]["s.customers"]] == [1, 3, 4, 8]
    assert [row["id"] for row in expected["rows"]["s.orders"]] == ["b", "c", "d", "x"]
    assert expected["open_errors"] == {"s.customers": 0, "s.orders": 1}
    assert [step for _, step, _, _ in expected["snapshots"]["s.customers"]][-2:] == ["1", "2"]
    for what, value in expected.items():
        assert found[what] == value, what
    assert_each_batch_once(found)


LAST_ROWS = {
    "s.customers": [
        (1, "b", 0, None),
        (3, "c", 1, "Bonn"),
        (4, "again", 0, "Kiel"),
        (5, "e", 0, None),
        (6, "f", 2**40, "Ulm"),
        (7, "h", 0, None),
    ],
    "s.orders": [("b", 22, "again"), ("c", 33, "second"), ("d", 4, "first"), ("x", 10, None)],
}
"""The rows that the history ends with."""


def assert_as_written(lake: Lake) -> None:
    found = contents(lake)
    assert {name: [tuple(row.values()) for row in rows] for name, rows in found["rows"].items()} == LAST_ROWS
    assert_each_batch_once(found)


def test_a_batch_killed_with_its_spark_is_finished_on_another_spark(
    spark_connect: str, tmp_path: Path, customers: Topic
) -> None:
    """Kill a process with its Spark after the first of two merges; a process on another Spark goes on with the batch."""
    own_spark = {
        "spark_master": "local[2]",
        "spark_driver_memory": "1g",
        "spark_conf": json.dumps({"spark.driver.extraJavaOptions": SHORT_RUN_OPTIONS}),
    }
    shop = Shop(tmp_path, "lake")
    shop.define()
    write_history(tmp_path / "topics", customers)
    shop.killed("after-merge:3", **own_spark)
    open_batch = shop.lake.batches.readers("shop")["main"].intent
    assert open_batch is not None
    shop.ingest(spark_remote=spark_connect)
    assert open_batch.mz_timestamp in [batch.mz_timestamp for batch in shop.lake.batches.history("shop")]
    assert_as_written(shop.lake)


@pytest.mark.stack
def test_an_ingest_into_an_object_store_killed_while_it_writes_ends_with_the_same_rows(
    spark_connect: str, s3_server: S3Server, tmp_path: Path, customers: Topic
) -> None:
    shop = Shop(tmp_path, "lake", s3_server.new_lake(tmp_path), spark_remote=spark_connect)
    shop.define()
    write_history(tmp_path / "topics", customers)
    for point in ("after-evolution", "before-publish:3", "after-merge", "before-commit"):
        shop.killed(point)
    shop.ingest()
    assert_as_written(shop.lake)


def test_a_process_that_wakes_up_after_losing_its_source_writes_nothing(
    spark_connect: str, tmp_path: Path, customers: Topic
) -> None:
    """Suspend a process with staged rows, while another one finishes its batch and keeps the lease."""
    shop = Shop(tmp_path, "lake", spark_remote=spark_connect)
    shop.define()
    write_history(tmp_path / "topics", customers)
    suspended = shop.processes.start(suspend_at="before-publish")
    try:
        process = psutil.Process(suspended.pid)
        wait_for(lambda: process.status() == psutil.STATUS_STOPPED, within_s=120)
        shop.killed("after-commit")
        process.send_signal(signal.SIGCONT)
        code, output = shop.processes.ended(suspended)
    finally:
        suspended.kill()
    assert code == 1
    assert "this process lost the lease of source" in output
    shop.ingest()
    assert_as_written(shop.lake)
