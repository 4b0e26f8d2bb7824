"""Tables created on a running source: a reader of their own fills them together, while the other tables go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehold.ingest import batch_size
from lakehold.ingest.batch_report import BatchReport
from lakehold.model.readers import BACKFILL_READER, MAIN_READER
from tests.conftest import LakeFactory
from tests.numbered_shop import BATCH, NumberedShop

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(make_lake: LakeFactory, tmp_path: Path) -> NumberedShop:
    found = NumberedShop(make_lake(max_batch_records=BATCH), tmp_path / "topics")
    found.table("first", "orders")
    found.write("orders", 2 * BATCH)
    found.write("items", 2 * BATCH)
    found.lake.ingest("shop")
    return found


def seen(reports: list[BatchReport]) -> list[tuple[str, list[str]]]:
    return [(report.reader, sorted(table.table for table in report.tables)) for report in reports]


def test_tables_created_together_catch_up_together(shop: NumberedShop) -> None:
    shop.table("again", "orders")
    shop.table("items", "items")
    reports = shop.lake.ingest("shop")
    together = [tables for reader, tables in seen(reports) if reader == BACKFILL_READER]
    assert together == [["s.again"], ["s.again"], ["s.items"], ["s.items"]] or together[0] == ["s.again", "s.items"]
    assert shop.readers() == {MAIN_READER: {"s.first", "s.again", "s.items"}}
    assert (shop.rows("first"), shop.rows("again"), shop.rows("items")) == (8, 8, 8)
    shop.write("orders", 1)
    shop.write("items", 1)
    (report,) = shop.lake.ingest("shop")
    assert seen([report]) == [(MAIN_READER, ["s.again", "s.first", "s.items"])]


def test_other_tables_go_on_while_one_catches_up(shop: NumberedShop) -> None:
    shop.table("again", "orders")
    reports: list[BatchReport] = []
    ingesting: Iterator[BatchReport] = shop.lake.batches_of("shop")
    for report in ingesting:
        reports.append(report)
        if report.reader == BACKFILL_READER and len(reports) < 6:
            shop.write("orders", 1)
    readers = [reader for reader, tables in seen(reports) if tables]
    assert readers[:4] == [BACKFILL_READER, MAIN_READER, BACKFILL_READER, MAIN_READER]
    assert shop.readers() == {MAIN_READER: {"s.first", "s.again"}}
    assert shop.rows("first") == shop.rows("again") == shop.written["orders"] > 2 * BATCH
    assert len({report.timestamp_ms for report in reports}) == len(reports)


def test_other_tables_wait_for_small_batches_however_large_batches_may_be(
    make_lake: LakeFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_size, "LEAST_RECORDS", 2)
    monkeypatch.setattr(batch_size, "_BATCH_MS", 1)
    shop = NumberedShop(make_lake(), tmp_path / "topics")
    shop.table("first", "orders")
    shop.write("orders", 5)
    shop.lake.ingest("shop")
    shop.table("again", "orders")
    behind = [report.records for report in shop.lake.ingest("shop") if report.reader == BACKFILL_READER]
    assert behind == [2, 2, 1]
    assert shop.rows("again") == 5


def test_a_table_that_stops_while_it_catches_up_leaves_the_others(shop: NumberedShop) -> None:
    shop.write("items", 1, value=b"no json")
    shop.table("strict", "items", "WITH (ON ERROR = 'fail')")
    shop.table("again", "orders")
    reports = shop.lake.ingest("shop")
    assert [name for report in reports for name in report.stopped] == ["s.strict"]
    assert shop.readers() == {MAIN_READER: {"s.first", "s.again"}, "s.strict": {"s.strict"}}
    assert shop.rows("again") == 2 * BATCH


def test_a_table_with_few_messages_does_not_wait_for_one_with_many(shop: NumberedShop) -> None:
    shop.write("orders", 4 * BATCH)
    shop.lake.ingest("shop")
    shop.table("large", "orders")
    ingesting = shop.lake.batches_of("shop")
    while next(ingesting).reader != BACKFILL_READER:
        pass
    ingesting.close()
    shop.table("small", "items")
    reports = shop.lake.ingest("shop")
    assert [report.reader for report in reports if report.reader != MAIN_READER] == [
        *[BACKFILL_READER, "s.small"] * 2,
        *[BACKFILL_READER] * 3,
    ]
    assert (shop.rows("large"), shop.rows("small")) == (6 * BATCH, 2 * BATCH)


def test_tables_that_catch_up_go_on_after_a_restart(shop: NumberedShop, make_lake: LakeFactory) -> None:
    shop.table("again", "orders")
    ingesting = shop.lake.batches_of("shop")
    while next(ingesting).reader != BACKFILL_READER:
        pass
    ingesting.close()
    assert shop.readers() == {MAIN_READER: {"s.first"}, BACKFILL_READER: {"s.again"}}
    settings = shop.lake.settings
    shop.lake = make_lake(Path(settings.warehouse), catalog_name=settings.catalog_name, max_batch_records=BATCH)
    shop.table("later", "orders")
    reports = shop.lake.ingest("shop")
    assert {"s.later", BACKFILL_READER} <= {report.reader for report in reports}
    assert sum(table.inserted for report in reports for table in report.tables if table.table == "s.again") == BATCH
    assert shop.readers() == {MAIN_READER: {"s.first", "s.again", "s.later"}}
    assert shop.rows("again") == shop.rows("later") == 2 * BATCH
