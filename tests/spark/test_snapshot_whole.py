"""A re-snapshot of a source with whole transactions is applied in one batch: no timestamp shows a part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehold.errors import TransactionIncomplete
from lakehold.failpoints import Point
from lakehold.ingest import source_opening
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.whole_transactions import WholeTransactions
from lakehold.lake import Lake
from lakehold.status import COLUMNS, status_of
from tests.conftest import LakeFactory
from tests.stopped_tables import make_foreign, make_own
from tests.transaction_files import Connector, define, define_table, states

pytestmark = pytest.mark.spark

WAITING_FOR = COLUMNS.index("waiting_for")
TABLES = {"a": "DEBEZIUM UPSERT", "b": "DEBEZIUM"}


class Shop:
    """A lake with tables `a` and `b`, which have the same rows after each commit upstream."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake = lake
        define(lake, directory, TABLES, "WITH (MAX RECORDS = 4)")
        self.connector = Connector(directory)
        self.connector.transaction(*((table, key, 1) for key in range(1, 5) for table in TABLES))
        self.ingest()
        self.connector.lose_position(unseen=3)

    def change(self, key: int, v: int | None) -> None:
        self.connector.transaction(("a", key, v), ("b", key, v))

    def ingest(self) -> list[BatchReport]:
        return self.lake.ingest("shop")

    def rows(self, table: str) -> dict[int, int]:
        return dict(self.lake.sql(f"SELECT id, v FROM shop.{table}").rows)

    def assert_commits(self, *wanted: dict[int, int]) -> None:
        """Assert that both tables had the same rows at each timestamp, and that their last distinct states are `wanted`."""
        seen: list[dict[int, int]] = []
        for state in states(self.lake, TABLES):
            a, b = ({key: v for (table, key), v in state.items() if table == f"public.{name}"} for name in "ab")
            assert a == b
            if a not in seen[-1:]:
                seen.append(a)
        assert tuple(seen[-len(wanted) :]) == wanted


@pytest.fixture
def shop(lake: Lake, tmp_path: Path) -> Shop:
    return Shop(lake, tmp_path / "topics")


def test_a_resnapshot_is_one_batch_that_deletes_missing_rows(shop: Shop) -> None:
    shop.change(1, 2)
    shop.connector.lose_position(unseen=2)
    rows = [(key, 3) for key in range(2, 12)]
    shop.connector.snapshot("a", rows, is_last=False)
    shop.connector.snapshot("b", rows)
    shop.change(2, 4)
    *_, before, whole = shop.ingest()
    assert (before.records, whole.records) == (2, 22)
    resnapshotted = dict(rows)
    shop.assert_commits({1: 2, 2: 1, 3: 1, 4: 1}, {**resnapshotted, 2: 4})


def test_an_incomplete_resnapshot_is_awaited_and_reported(shop: Shop) -> None:
    rows = [(1, 3), (2, 3)]
    shop.connector.snapshot("a", rows, is_last=False)
    shop.connector.snapshot("b", rows[:1], is_last=False)
    *_, waiting = shop.ingest()
    assert waiting.waiting is not None
    assert waiting.waiting.what == "the connector's re-snapshot"
    assert waiting.waiting.tables == ("shop.a", "shop.b")
    (reported, _) = (row[WAITING_FOR] for row in status_of(shop.lake).rows)
    assert reported.startswith("the connector's re-snapshot since")
    assert "3 of its rows have arrived" in reported
    shop.assert_commits({1: 1, 2: 1, 3: 1, 4: 1})
    shop.connector.snapshot("b", rows[1:])
    shop.ingest()
    shop.assert_commits({1: 3, 2: 3})
    assert {row[WAITING_FOR] for row in status_of(shop.lake).rows} == {None}


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sources plan as for a captured database: a re-snapshot without rows of a table shows that the table has none."""
    monkeypatch.setattr(
        source_opening,
        "WholeTransactions",
        lambda *of, **flags: WholeTransactions(*of, **{**flags, "is_captured": True}),
    )


@pytest.mark.parametrize(("table", "later"), [("a", {}), ("b", {2: 9})])
@pytest.mark.usefixtures("captured")
def test_a_table_that_was_stopped_shows_a_resnapshot_without_rows_of_it(
    shop: Shop, table: str, later: dict[int, int]
) -> None:
    """Stop one table, empty it in the database while nobody sees it, and snapshot all tables again."""
    (other,) = TABLES.keys() - {table}
    make_foreign(shop.lake, f"shop.{table}")
    shop.change(1, 2)
    shop.change(9, 2)
    assert {name for report in shop.ingest() for name in report.stopped} == {f"shop.{table}"}
    shop.connector.lose_position(unseen=3)
    shop.connector.snapshot(other, [(1, 3), (5, 3)])
    shop.ingest()
    assert shop.rows(other) == {1: 3, 5: 3}
    make_own(shop.lake, f"shop.{table}")
    for key, v in later.items():
        shop.connector.transaction((table, key, v))
    for _ in range(2):
        shop.ingest()
        assert set(shop.lake.batches.readers("shop")) == {"main"}
        assert shop.rows(table) == later
    assert shop.rows(other) == {1: 3, 5: 3}


@pytest.mark.usefixtures("captured")
def test_rows_of_an_abandoned_transaction_are_not_in_a_table_that_a_resnapshot_empties(shop: Shop) -> None:
    """Kill the connector amid a transaction, whose END never comes, and empty the table while nobody sees it."""
    for table, other in (("a", "b"), ("b", "a")):
        shop.connector.transaction((table, 7, 2), (table, 8, 2), end=False)
        shop.connector.lose_position(unseen=3)
        shop.connector.snapshot(other, [(1, 3)])
        shop.ingest()
        assert shop.rows(table) == {}
        shop.connector.transaction((table, 9, 4))
        shop.ingest()
        assert shop.rows(table) == {9: 4}


@pytest.mark.usefixtures("captured")
def test_a_table_of_whose_rows_a_resnapshot_brings_errors_keeps_its_rows(shop: Shop) -> None:
    shop.connector.snapshot("a", [(1, 3)])
    shop.connector.raw("shop.public.b", {"id": 1}, "no message of Debezium")
    shop.ingest()
    assert shop.rows("a") == {1: 3}
    assert shop.rows("b") == dict.fromkeys(range(1, 5), 1)


@pytest.mark.usefixtures("captured")
def test_a_table_that_was_stopped_takes_the_rows_of_a_resnapshot(shop: Shop) -> None:
    make_foreign(shop.lake, "shop.b")
    shop.change(9, 2)
    shop.ingest()
    shop.connector.lose_position(unseen=3)
    shop.connector.snapshot("a", [(1, 3)], is_last=False)
    shop.connector.snapshot("b", [(key, 3) for key in range(1, 10)])
    shop.change(2, 4)
    shop.ingest()
    make_own(shop.lake, "shop.b")
    shop.ingest()
    assert shop.rows("b") == {**dict.fromkeys(range(1, 10), 3), 2: 4}


@pytest.mark.usefixtures("captured")
def test_a_table_that_joins_with_the_resnapshot_keeps_its_rows(shop: Shop) -> None:
    # The table takes its rows while the others wait for a sign that the re-snapshot is over.
    rows = [(1, 3), (2, 3)]
    for table in ("a", "b"):
        shop.connector.snapshot(table, rows, is_last=False)
    shop.connector.snapshot("c", rows)
    define_table(shop.lake, "c", "DEBEZIUM")
    shop.ingest()
    shop.change(1, 4)
    shop.ingest()
    assert sorted(shop.lake.sql("SELECT id, v FROM shop.c").rows) == rows
    shop.assert_commits({1: 1, 2: 1, 3: 1, 4: 1}, {1: 4, 2: 3})


def test_an_abandoned_resnapshot_is_an_error_that_the_next_one_heals(make_lake: LakeFactory, tmp_path: Path) -> None:
    shop = Shop(make_lake(transaction_timeout_ms=0), tmp_path / "topics")
    shop.connector.snapshot("a", [(1, 3)], is_last=False)
    with pytest.raises(TransactionIncomplete, match="the connector's re-snapshot") as stopped:
        shop.ingest()
    assert "1 of its rows have arrived" in stopped.value.detail
    shop.connector.lose_position(unseen=1)
    shop.connector.snapshot("a", [(1, 4), (2, 4)], is_last=False)
    shop.connector.snapshot("b", [(1, 4), (2, 4)])
    shop.ingest()
    shop.assert_commits({1: 1, 2: 1, 3: 1, 4: 1}, {1: 4, 2: 4})


@pytest.mark.parametrize(
    ("point", "driver_read_max_records"),
    [
        ("after-merge", 0),
        *(pytest.param(point, 10_000, marks=pytest.mark.soak) for point in ("after-intent", "before-commit")),
    ],
)
def test_a_killed_batch_with_a_resnapshot_is_finished_unchanged(
    make_lake: LakeFactory, tmp_path: Path, point: Point, driver_read_max_records: int
) -> None:
    shop = Shop(make_lake(driver_read_max_records=driver_read_max_records), tmp_path / "topics")
    rows = [(1, 3), (2, 3)]
    shop.connector.snapshot("a", rows, is_last=False)
    shop.connector.snapshot("b", rows)

    def die(here: Point) -> None:
        if here == point:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        for module in ("batch", "write.apply"):
            patch.setattr(f"lakehold.ingest.{module}.failpoint", die)
        with pytest.raises(KeyboardInterrupt):
            shop.ingest()
    # Later changes follow the re-snapshot in the topics.
    shop.change(3, 4)
    shop.ingest()
    shop.assert_commits({1: 1, 2: 1, 3: 1, 4: 1}, {1: 3, 2: 3}, {1: 3, 2: 3, 3: 4})
