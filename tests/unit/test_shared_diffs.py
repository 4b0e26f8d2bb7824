"""Diffs read once for several subscriptions: PyIceberg writes the tables, and this process reads them without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import REGISTRY
from pyiceberg.table import Table
from pyiceberg.types import StringType

from lakehold.errors import DefinitionError
from lakehold.lake import Lake, connect

NAME = "shop.orders"
SHAPES = (
    "",
    "ENVELOPE UPSERT (KEY (id))",
    "ENVELOPE DEBEZIUM (KEY (status, id))",
    "WITHIN TIMESTAMP ORDER BY status DESC, mz_diff",
)

OpenLake = Callable[..., Lake]


@pytest.fixture
def open_lake(tmp_path: Path) -> Iterator[OpenLake]:
    opened: list[Lake] = []

    def open_it(**settings: Any) -> Lake:
        opened.append(connect(str(tmp_path / "lake"), foreign_lag_ms=0, **settings))
        return opened[-1]

    yield open_it
    for lake in opened:
        lake.close()


def test_readers_of_a_table_see_no_change_to_an_equal_value_however_the_diff_is_read(open_lake: OpenLake) -> None:
    lake = open_lake()
    lake.catalog.create_namespace("shop")
    table = lake.catalog.create_table("shop.rates", pa.schema([("id", pa.int64()), ("rate", pa.float64())]))
    table.append(pa.table({"id": [1, 2], "rate": [0.0, 1.0]}))
    table.overwrite(pa.table({"id": [1, 2], "rate": [-0.0, 2.0]}))
    first, deleted, _ = table.history()
    table.maintenance.expire_snapshots().by_id(deleted.snapshot_id).commit()
    statement = f"SUBSCRIBE shop.rates WITH (SNAPSHOT = false) AS OF {first.timestamp_ms}"
    answers = [[row[1:] for row in lake.sql(statement).rows] for _ in ("read", "found")]
    assert answers == [[(-1, 2, 1.0), (1, 2, 2.0)]] * 2, "-0.0 equals 0.0"


class Orders:
    """A table of `(id, status)` and the timestamps of its versions."""

    def __init__(self, lake: Lake) -> None:
        self._catalog = lake.catalog
        lake.catalog.create_namespace("shop")
        lake.catalog.create_table(NAME, pa.schema([("id", pa.int64()), ("status", pa.string())]))

    @property
    def table(self) -> Table:
        return self._catalog.load_table(NAME)

    @property
    def times(self) -> list[int]:
        return [entry.timestamp_ms for entry in self.table.history()]

    def place(self, *ids: int) -> None:
        rows = pa.table({"id": pa.array(ids, pa.int64()), "status": ["placed"] * len(ids)})
        self.table.append(rows)

    def pay(self, id_: int) -> None:
        """Pay an order in one version, which replaces rows by whole files."""
        paid = pa.table({"id": pa.array([id_], pa.int64()), "status": ["paid"]})
        self.table.upsert(paid, ["id"])

    def delete_files(self) -> None:
        """Delete all data files, so that nothing can be read from them any more."""
        for task in self._catalog.load_table(NAME).inspect.all_files().to_pylist():
            Path(task["file_path"].removeprefix("file://")).unlink()


@pytest.fixture
def orders(open_lake: OpenLake) -> Orders:
    """Return orders, one of which was paid, and one placed later."""
    orders = Orders(open_lake())
    orders.place(1, 2, 3)
    orders.pay(2)
    orders.place(4)
    return orders


def changes(lake: Lake, orders: Orders, shape: str = "", *, after: int = 0, until: int = -1) -> list[tuple[Any, ...]]:
    """Return the changes after the version `after`, up to the version `until`."""
    times = orders.times
    return lake.sql(
        f"SUBSCRIBE {NAME} {shape} WITH (SNAPSHOT = false) AS OF {times[after]} UP TO {times[until] + 1}"
    ).rows


class Counted:
    """The number of diffs by how they were read, since this object was created."""

    def __init__(self) -> None:
        self._before = self._now()

    def __eq__(self, other: object) -> bool:
        now = self._now()
        return {read: now[read] - self._before[read] for read in now if now[read] > self._before[read]} == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self._before} to {self._now()}"

    def _now(self) -> dict[str, float]:
        name = "lakehold_subscribe_diffs_total"
        return {read: REGISTRY.get_sample_value(name, {"read": read}) or 0.0 for read in ("here", "by_spark", "shared")}


def test_each_diff_is_read_once_for_all_output_options(open_lake: OpenLake, orders: Orders) -> None:
    lake, alone = open_lake(), open_lake(shared_diffs_max_bytes=0)
    versions = len(orders.times) - 1
    expected = [changes(alone, orders, shape) for shape in SHAPES]
    counted = Counted()
    assert [changes(lake, orders, shape) for shape in SHAPES] == expected
    assert counted == {"here": versions, "shared": versions * (len(SHAPES) - 1)}


def test_cached_diffs_need_no_files(open_lake: OpenLake, orders: Orders) -> None:
    lake = open_lake()
    found = changes(lake, orders)
    orders.delete_files()
    assert changes(lake, orders) == found
    with pytest.raises(DefinitionError, match="cannot be read"):
        changes(open_lake(), orders)


def test_a_slower_reader_reads_only_diffs_that_are_not_cached(open_lake: OpenLake, orders: Orders) -> None:
    lake = open_lake()
    newest = changes(lake, orders, after=-2)
    orders.place(5)
    versions = len(orders.times) - 1
    counted = Counted()
    assert changes(lake, orders, until=-2)[-len(newest) :] == newest
    assert changes(lake, orders) == changes(open_lake(), orders)
    assert counted == {"here": versions - 1 + versions, "shared": versions}


def test_a_first_snapshot_is_read_once_for_several_timestamps(open_lake: OpenLake, orders: Orders) -> None:
    lake = open_lake()
    at = orders.times[-1]
    counted = Counted()
    for as_of in (at, at + 1):
        rows = lake.sql(f"SUBSCRIBE {NAME} AS OF {as_of} UP TO {as_of + 1}").rows
        assert [row[:2] for row in rows] == [(as_of, 1)] * 4
    assert counted == {"here": 1, "shared": 1}


def test_a_table_that_gets_a_column_is_read_again_with_it(open_lake: OpenLake, orders: Orders) -> None:
    lake = open_lake()
    before = changes(lake, orders)
    with orders.table.update_schema() as update:
        update.add_column("note", StringType())
    assert changes(lake, orders) == [(*row, None) for row in before]


def test_a_recreated_table_shares_no_diffs_with_its_namesake(open_lake: OpenLake, orders: Orders) -> None:
    lake = open_lake()
    assert {row[2] for row in changes(lake, orders)} == {2, 4}
    lake.catalog.drop_table(NAME)
    lake.catalog.drop_namespace("shop")
    other = Orders(lake)
    other.place(7)
    other.place(8)
    assert {row[2] for row in changes(lake, other)} == {8}


def test_the_cache_keeps_no_more_than_its_setting(open_lake: OpenLake, orders: Orders) -> None:
    orders.place(*range(1_000, 2_000))
    orders.place(5)
    lake = open_lake(shared_diffs_max_bytes=20_000)
    last = len(orders.times) - 1
    counted = Counted()
    for until in range(1, last + 1):
        changes(lake, orders, after=until - 1, until=until)
    for _ in range(2):
        changes(lake, orders, after=last - 2, until=last - 1)  # the thousand rows, which exceed the cache
        changes(lake, orders, after=last - 1, until=last)
    assert counted == {"here": last + 2, "shared": 2}


def test_concurrent_threads_wait_for_the_one_that_reads(open_lake: OpenLake, orders: Orders) -> None:
    lake, threads = open_lake(), 8
    versions = len(orders.times) - 1
    together = Barrier(threads)

    def ask(thread: int) -> list[tuple[Any, ...]]:
        together.wait()
        return changes(lake, orders, SHAPES[thread % len(SHAPES)])

    counted = Counted()
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(ask, range(threads)))
    assert found == [changes(open_lake(shared_diffs_max_bytes=0), orders, shape) for shape in SHAPES] * 2
    assert counted == {"here": versions * (1 + len(SHAPES)), "shared": versions * (threads - 1)}


def test_explain_shows_which_diffs_are_cached(open_lake: OpenLake, orders: Orders) -> None:
    lake = open_lake()
    changes(lake, orders, after=-2)
    plan = lake.sql(f"EXPLAIN SUBSCRIBE {NAME} AS OF {orders.times[0]}").rows
    sources = [line.rsplit(", ", 1)[1] for (line,) in plan if ": snapshot " in line]
    assert sources == ["read here"] * (len(orders.times) - 2) + ["already read"]
