"""A backlog after the first snapshot is history: a table is readable from the batch with the last row of its snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lakehold.failpoints import Point
from lakehold.lake import Lake
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.debezium_shop import COLUMNS, Shop, few_and_many, row
from tests.transaction_files import Connector, define, states

pytestmark = pytest.mark.spark

Rows = list[tuple[Any, ...]]


def timestamps(lake: Lake) -> list[int]:
    return [batch.mz_timestamp for batch in lake.batches.history("shop")]


def since_batch(lake: Lake, table: str) -> int:
    """Return the index of the first batch at which a table is readable."""
    return timestamps(lake).index(lake.timelines.of([table])[table].since_ms)


def shown(lake: Lake, table: str, batch: int) -> Rows:
    """Return the ids and numbers that a table had after a batch."""
    return sorted(lake.sql(f"SELECT id, n FROM {table} AS OF {timestamps(lake)[batch]}").rows)


def subscribed(lake: Lake, table: str) -> Rows:
    """Return the changes after `since`: batch, diff, id and number."""
    line, at = lake.timelines.of([table])[table], timestamps(lake)
    out = lake.sql(
        f"SUBSCRIBE (SELECT id, n FROM {table}) WITH (SNAPSHOT = false) AS OF {line.since_ms} UP TO {line.upper_ms}"
    )
    return sorted((at.index(ms), diff, id_, n) for ms, diff, id_, n in out.rows)


def updates(topic: Topic, *keys: int, partition: int = 0) -> None:
    for key in keys:
        topic.update(row(key), row(key, n=topic.lsn + 10), partition=partition)


@pytest.mark.parametrize(
    ("settings", "has_last_row"),
    [({}, True), ({"driver_read_max_records": 0}, False)],
    ids=["last-row-in-driver", "later-change-by-spark"],
)
def test_each_table_is_readable_from_its_own_batch(
    make_lake: LakeFactory, tmp_path: Path, settings: dict[str, int], has_last_row: bool
) -> None:
    lake = make_lake(**settings, max_batch_records=8)
    shop = Shop(lake, tmp_path / "topics")
    small, large = Topic("small", dict(COLUMNS)), Topic("large", dict(COLUMNS))
    shop.table(small, "DEBEZIUM")
    shop.table(large, "DEBEZIUM UPSERT")
    small.snapshot([row(1), row(2)], ended=has_last_row)
    large.snapshot([row(key) for key in range(10)], ended=has_last_row)
    updates(small, 1, 2, 1, 2, 1, 2)
    updates(large, 7, 8)
    shop.ingest(small, large)
    # Each batch has four messages of each topic, and the last one the rest.
    assert since_batch(lake, "s.small") == 0
    assert since_batch(lake, "s.large") == 2
    assert shown(lake, "s.small", 0) == [(1, 1_010), (2, 1_020)]
    assert shown(lake, "s.small", 1) == [(1, 1_050), (2, 1_060)]
    assert (1, -1, 1, 1_010) in subscribed(lake, "s.small")
    assert shown(lake, "s.large", 2)[7:] == [(7, 1_010), (8, 1_020), (9, 0)]


@few_and_many
def test_unread_rows_in_another_partition_keep_a_table_unreadable(
    make_lake: LakeFactory, tmp_path: Path, settings: dict[str, int]
) -> None:
    lake = make_lake(**settings, max_batch_records=4)
    shop = Shop(lake, tmp_path / "topics")
    topic = Topic("t", dict(COLUMNS))
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(key) for key in range(5)], ended=False)
    topic.snapshot([row(10)], partition=1)
    updates(topic, *[10] * 9, partition=1)
    updates(topic, *range(5))
    shop.ingest(topic)
    # A batch has two messages of each partition: the third batch has partition 0's last row and its first change.
    assert since_batch(lake, "s.t") == 2
    assert len(shown(lake, "s.t", 2)) == 6
    last = len(timestamps(lake)) - 1
    assert {n > 0 for _, n in shown(lake, "s.t", last)} == {True}
    assert len([diff for _, diff, *_ in subscribed(lake, "s.t") if diff == 1]) >= 4


def test_a_partition_without_changes_is_complete_when_it_is_fully_read(make_lake: LakeFactory, tmp_path: Path) -> None:
    lake = make_lake(max_batch_records=4)
    shop = Shop(lake, tmp_path / "topics")
    topic = Topic("t", dict(COLUMNS))
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(key) for key in range(4)], ended=False)
    topic.snapshot([row(10)], partition=1)
    updates(topic, *[10] * 12, partition=1)
    shop.ingest(topic)
    assert since_batch(lake, "s.t") == 1
    assert len(timestamps(lake)) > 2
    assert len(shown(lake, "s.t", 1)) == 5


def test_a_topic_in_several_files_is_read_in_the_order_of_its_offsets(make_lake: LakeFactory, tmp_path: Path) -> None:
    lake = make_lake(max_batch_records=3)
    shop = Shop(lake, tmp_path / "topics")
    topic = Topic("t", dict(COLUMNS))
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(2), row(3), row(4)])
    updates(topic, 1, 2, 3, 4, 1)
    lines = topic.lines
    for number in range(3):
        recorded_files.append(shop.directory / f"part-{3 - number}.jsonl", lines[number::3])
    lines.clear()
    shop.ingest()
    assert since_batch(lake, "s.t") == 1
    assert shown(lake, "s.t", 1) == [(1, 1_010), (2, 1_020), (3, 0), (4, 0)]
    assert shown(lake, "s.t", 2) == [(1, 1_050), (2, 1_020), (3, 1_030), (4, 1_040)]


@pytest.mark.parametrize("point", ["after-merge", pytest.param("before-commit", marks=pytest.mark.soak)])
def test_a_killed_batch_with_the_last_row_makes_its_table_readable_when_it_is_finished(
    make_lake: LakeFactory, tmp_path: Path, point: Point
) -> None:
    lake = make_lake(max_batch_records=4)
    shop = Shop(lake, tmp_path / "topics")
    topic = Topic("t", dict(COLUMNS))
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1), row(2)], ended=False)
    topic.snapshot([row(3)], partition=1)
    updates(topic, 1, 2, 1)

    def die(here: Point) -> None:
        if here == point:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        for module in ("batch", "write.apply"):
            patch.setattr(f"lakehold.ingest.{module}.failpoint", die)
        with pytest.raises(KeyboardInterrupt):
            shop.ingest(topic)
    updates(topic, 2, 3)
    shop.ingest(topic)
    assert since_batch(lake, "s.t") == 0
    assert shown(lake, "s.t", 0) == [(1, 1_010), (2, 0), (3, 0)]


class Numbers:
    """Tables `a`, `b` and `c`, whose sums are equal after each commit upstream."""

    def __init__(self, lake: Lake, directory: Path, max_records: int) -> None:
        self.lake = lake
        tables = {"a": "DEBEZIUM UPSERT", "b": "DEBEZIUM", "c": "DEBEZIUM"}
        define(lake, directory, tables, f"WITH (MAX RECORDS = {max_records})")
        self.tables = tuple(tables)
        self.connector = Connector(directory)

    def snapshot(self, *sizes: int) -> None:
        for table, size in zip(self.tables, sizes, strict=True):
            rows = [(key, 12 // size) for key in range(size)]
            self.connector.snapshot(table, rows, is_last=table == self.tables[-1])

    def change(self, v: int, tables: Sequence[str]) -> None:
        self.connector.transaction(*[(table, 0, v) for table in tables])

    def sums(self) -> list[dict[str, int]]:
        """Return the sum of each table at each timestamp at which all tables are readable."""
        return [
            {table: sum(v for (of, _), v in state.items() if of == f"public.{table}") for table in self.tables}
            for state in states(self.lake, self.tables)
        ]


@pytest.mark.parametrize("max_records", [pytest.param(4, marks=pytest.mark.soak), 7])
def test_tables_that_become_readable_one_by_one_show_whole_transactions(
    lake: Lake, tmp_path: Path, max_records: int
) -> None:
    numbers = Numbers(lake, tmp_path / "topics", max_records)
    # Each table sums to 12, in few rows or many; whole transactions keep key 0 equal in tables of as many rows.
    numbers.snapshot(12, 1, 12)
    for v in range(2, 12):
        numbers.connector.transaction(("a", 0, v), ("c", 0, v))
    numbers.connector.transaction(("b", 0, 99))
    lake.ingest("shop")
    found = numbers.sums()
    assert {sums["a"] == sums["c"] for sums in found} == {True}
    assert found[-1] == {"a": 22, "b": 99, "c": 22}
    assert len(found) >= 3, "the backlog is history"
    assert lake.timelines.of(["shop.b"])["shop.b"].since_ms < lake.timelines.of(["shop.a"])["shop.a"].since_ms


def test_a_resnapshot_in_the_backlog_is_one_step_for_readable_tables(lake: Lake, tmp_path: Path) -> None:
    numbers = Numbers(lake, tmp_path / "topics", 4)
    numbers.snapshot(6, 6, 6)
    numbers.connector.transaction(("a", 0, 3), ("b", 0, 3), ("c", 0, 3))
    numbers.connector.lose_position(unseen=2)
    for table in numbers.tables:
        numbers.connector.snapshot(table, [(key, 5) for key in range(3)], is_last=table == "c")
    numbers.connector.transaction(("a", 0, 6), ("b", 0, 6), ("c", 0, 6))
    lake.ingest("shop")
    found = [sums["a"] for sums in numbers.sums() if sums["a"] == sums["b"] == sums["c"]]
    assert len(found) == len(numbers.sums())
    assert list(dict.fromkeys(found)) == [12, 13, 16]
