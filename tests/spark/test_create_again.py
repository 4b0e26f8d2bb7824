"""A table of a running source is dropped and created again: the new table begins empty, and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from lakehold.errors import SubscriberLapsed
from lakehold.failpoints import Point
from lakehold.ingest import batch
from lakehold.ingest.batch_report import BatchReport
from lakehold.lake import Lake
from lakehold.model.readers import BACKFILL_READER, MAIN_READER
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.numbered_shop import BATCH, NumberedShop

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(make_lake: LakeFactory, tmp_path: Path) -> NumberedShop:
    """Return a shop whose tables `s.first` and `s.items` have all messages of their topics."""
    found = NumberedShop(make_lake(max_batch_records=BATCH), tmp_path / "topics")
    found.table("first", "orders")
    found.table("items", "items")
    found.write("orders", 2 * BATCH)
    found.write("items", 2 * BATCH)
    found.lake.ingest("shop")
    return found


def again(shop: NumberedShop, name: str = "items", topic: str = "items", options: str = "") -> None:
    shop.lake.sql(f"DROP TABLE s.{name}")
    shop.table(name, topic, options)


def all_together(shop: NumberedShop, *tables: str) -> None:
    """Assert that the main reader has all tables, and that its next batch feeds each of them."""
    assert shop.readers() == {MAIN_READER: {f"s.{name}" for name in tables}}
    shop.write("orders", 1)
    shop.write("items", 1)
    (report,) = shop.lake.ingest("shop")
    assert (report.reader, len(report.tables)) == (MAIN_READER, len(tables))
    assert {name: shop.rows(name) for name in tables} == {
        name: shop.written["items" if name == "items" else "orders"] for name in tables
    }


def test_a_recreated_table_is_filled_from_the_beginning_and_the_others_are_not_read_again(shop: NumberedShop) -> None:
    before = shop.lake.catalog.load_table("s.first").metadata.current_snapshot_id
    again(shop)
    reports = shop.lake.ingest("shop")
    assert {table.table for report in reports for table in report.tables} == {"s.items"}
    assert sum(report.records for report in reports) == 2 * BATCH
    assert shop.lake.catalog.load_table("s.first").metadata.current_snapshot_id == before
    all_together(shop, "first", "items")


def test_a_recreated_table_has_no_errors_of_the_dropped_one(shop: NumberedShop) -> None:
    shop.write("items", 1, value=b"no json")
    shop.lake.ingest("shop")
    assert shop.status("items")["open_errors"] == 1
    shop.lake.sql("DROP TABLE s.items")
    shop.table("items", "items", "WITH (ON ERROR = 'fail')")
    shop.lake.ingest("shop")
    assert shop.status("items")["state"] == "stopped"
    assert shop.lake.sql("SELECT count(*) FROM mz_catalog.mz_source_errors").rows == [(0,)]

    again(shop)
    assert (shop.status("items")["state"], shop.status("items")["stopped_by"]) == ("new", None)
    shop.lake.ingest("shop")
    status = shop.status("items")
    assert (status["state"], status["open_errors"]) == ("live", 1)
    assert shop.rows("items") == 2 * BATCH


def test_errors_that_another_source_recorded_for_the_same_name_remain(shop: NumberedShop) -> None:
    shop.write("items", 1, value=b"no json")
    shop.lake.ingest("shop")
    shop.lake.sql("DROP TABLE s.items")
    shop.lake.sql(f"CREATE SOURCE other FROM FILES '{shop.directory}' FORMAT JSON")
    shop.lake.sql("CREATE TABLE s.items (k BIGINT, v STRING) FROM SOURCE other (TOPIC 'items') ENVELOPE UPSERT")
    shop.lake.ingest("other")
    shop.lake.ingest("shop")
    assert shop.lake.sql("SELECT source FROM mz_catalog.mz_source_errors").rows == [("other",)]


def test_a_source_that_is_created_again_records_its_own_bad_messages(shop: NumberedShop) -> None:
    """Send two bad messages at the places of two that a dropped source of the same name recorded."""

    def sends(value: str) -> None:
        shop.write("items", 1, value=value.encode())
        recorded_files.append(shop.directory / "orders.jsonl", [value])
        shop.lake.ingest("shop")

    sends("first")
    shop.lake.sql("DROP SOURCE shop CASCADE")
    for file in shop.directory.iterdir():
        file.unlink()
    shop = NumberedShop(shop.lake, shop.directory)
    shop.table("items", "items")
    shop.write("orders", 2 * BATCH)
    shop.write("items", 2 * BATCH)
    sends("second")
    recorded = "SELECT CAST(value AS STRING) FROM mz_catalog.mz_source_errors WHERE table_name"
    assert shop.lake.sql(f"{recorded} = 's.items'").rows == [("second",)]
    assert shop.lake.sql(f"{recorded} IS NULL").rows == [("second",)]
    assert shop.status("items")["open_errors"] == 1


def test_a_table_is_recreated_while_another_catches_up(shop: NumberedShop) -> None:
    shop.table("again", "orders")
    shop.table("third", "orders")
    until_backfilled(shop.lake)
    again(shop)
    again(shop, "third", "orders")
    reports = shop.lake.ingest("shop")
    assert {BACKFILL_READER, f"{BACKFILL_READER}_2"} <= {report.reader for report in reports}
    # The messages that were read for `s.again` before are not read again.
    read = {name: 0 for name in ("s.again", "s.third", "s.items")}
    for report in reports:
        for table in report.tables:
            read[table.table] += table.records
    assert read == {"s.again": BATCH, "s.third": 2 * BATCH, "s.items": 2 * BATCH}
    all_together(shop, "first", "again", "third", "items")


def until_backfilled(lake: Lake) -> None:
    """Ingest until the tables that catch up had one batch."""
    ingesting = lake.batches_of("shop")
    while next(ingesting).reader != BACKFILL_READER:
        pass
    ingesting.close()


def test_a_topic_whose_only_table_was_dropped_is_read_from_its_beginning(shop: NumberedShop) -> None:
    """Drop the only table of a topic while two catch up: the next table does not begin at the offset of the dropped one."""
    shop.lake.sql("DROP TABLE s.items")
    shop.lake.ingest("shop")
    shop.table("again", "orders")
    shop.table("items", "items")
    until_backfilled(shop.lake)
    again(shop)
    shop.lake.ingest("shop")
    all_together(shop, "first", "again", "items")


@pytest.mark.parametrize("name", ["items", "again"])
def test_a_table_dropped_while_batches_run_is_not_created_again(shop: NumberedShop, name: str) -> None:
    """Drop a table amid an ingest, once in sync with the others and once catching up."""
    topic = "items" if name == "items" else "orders"
    if name == "again":
        shop.table(name, topic)
    shop.write("orders", 3 * BATCH)
    shop.write("items", 3 * BATCH)
    seen: list[BatchReport] = []

    def dropping(report: BatchReport) -> None:
        if f"s.{name}" in {table.table for table in report.tables} and not seen:
            seen.append(report)
            shop.lake.sql(f"DROP TABLE s.{name}")

    reports = shop.lake.ingest("shop", dropping)
    assert [stopped for report in reports for stopped in report.stopped] == []
    assert not shop.lake.catalog.table_exists(f"s.{name}")
    shop.table(name, topic)
    shop.lake.ingest("shop")
    all_together(shop, *{"first", "items", name})


def test_the_remains_of_a_killed_drop_are_not_used_for_the_new_table(
    shop: NumberedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill a DROP TABLE after it deleted the definition: the Iceberg table remains."""
    with monkeypatch.context() as killed:
        killed.setattr(shop.lake, "drop_iceberg_table", lambda *_: True)
        shop.lake.sql("DROP TABLE s.items")
    assert shop.lake.catalog.table_exists("s.items")
    shop.table("items", "items")
    shop.lake.ingest("shop")
    all_together(shop, "first", "items")


def lose_metadata(lake: Lake, name: str) -> None:
    Path(lake.catalog.load_table(name).metadata_location.removeprefix("file:")).unlink()
    lake.catalog.close()  # forgets what it has read


def test_a_table_whose_metadata_is_lost_is_dropped_and_created_again(shop: NumberedShop) -> None:
    lose_metadata(shop.lake, "s.items")
    again(shop)
    shop.lake.ingest("shop")
    all_together(shop, "first", "items")


def test_remains_of_a_killed_drop_that_cannot_be_read_stop_no_other_table(
    shop: NumberedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(shop.lake, "drop_iceberg_table", lambda *_: True)
        shop.lake.sql("DROP TABLE s.items")
    lose_metadata(shop.lake, "s.items")
    shop.write("orders", 1)
    shop.lake.ingest("shop")
    all_together(shop, "first")


def test_a_view_whose_metadata_is_lost_is_dropped_and_created_again(shop: NumberedShop) -> None:
    for _ in range(2):
        shop.lake.sql("CREATE MATERIALIZED VIEW s.count AS SELECT count(*) AS n FROM s.items")
        shop.lake.publish("s.count")
        assert shop.lake.sql("SELECT n FROM s.count").rows == [(2 * BATCH,)]
        lose_metadata(shop.lake, "s.count")
        shop.lake.sql("DROP MATERIALIZED VIEW s.count")
    assert not shop.lake.catalog.table_exists("s.count")


def test_a_client_of_a_view_that_was_created_again_with_another_query_does_not_read_on(shop: NumberedShop) -> None:
    """Create the view again while its source is idle: both views begin with the same timestamp."""

    def create(condition: str) -> None:
        shop.lake.sql(f"CREATE MATERIALIZED VIEW s.some AS SELECT * FROM s.items WHERE {condition}")
        shop.lake.publish("s.some")

    create("k > 0")
    client = shop.lake.durable("app", "SUBSCRIBE s.some")
    client.run(lambda _: None, lambda *_: None)
    shop.lake.sql("DROP MATERIALIZED VIEW s.some CASCADE")
    create("k > 1")
    with pytest.raises(SubscriberLapsed) as lapsed:
        client.run(lambda _: None, lambda *_: None)
    assert lapsed.value.code == "table-replaced"


def test_a_table_renamed_to_the_name_of_the_dropped_one_remains(shop: NumberedShop) -> None:
    shop.lake.sql("DROP TABLE s.items")
    shop.lake.ingest("shop")
    shop.lake.catalog.rename_table("s.first", "s.items")  # as another program may
    shop.table("items", "items")
    reports = shop.lake.ingest("shop")
    assert {name: error.code for report in reports for name, error in report.stopped.items()}[
        "s.items"
    ] == "table-foreign"
    assert shop.rows("items") == 2 * BATCH


def test_a_definition_over_a_table_of_another_tool_is_undone_without_touching_that_table(shop: NumberedShop) -> None:
    shop.lake.sql("CREATE TABLE s.totals AS SELECT 7 AS total")
    shop.table("totals", "orders")
    assert {name: e.code for report in shop.lake.ingest("shop") for name, e in report.stopped.items()} == {
        "s.totals": "table-foreign"
    }
    notices = shop.lake.sql("DROP TABLE s.totals").notices
    assert notices == ('the Iceberg table "s.totals" stays: the dropped table did not create it, or it cannot be read',)
    assert shop.lake.sql("SELECT total FROM s.totals").rows == [(7,)]
    shop.lake.ingest("shop")
    assert shop.lake.sql("SELECT total FROM s.totals").rows == [(7,)]


@pytest.mark.parametrize(
    ("name", "ingest"),
    [
        ("items", lambda lake: lake.batches_together(["shop"], turn_s=0)),
        ("late", lambda lake: lake.batches_together(["shop"], turn_s=0)),
        ("late", lambda lake: lake.backfill(["s.late"])),
    ],
    ids=["in its turn", "catching up in its turn", "backfill"],
)
def test_a_source_that_is_dropped_during_its_last_batch_leaves_no_table(
    make_lake: LakeFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    ingest: Callable[[Lake], Iterable[object]],
) -> None:
    """Drop the source after its last batch has begun, which then creates the table."""
    shop = NumberedShop(make_lake(), tmp_path / "topics")
    shop.table("items", "items")
    shop.write("items", BATCH)
    if name == "late":
        shop.lake.ingest("shop")
        shop.table(name, "items")

    dropped: list[Point] = []

    def dropping(point: Point) -> None:
        if point == "after-intent" and not shop.lake.catalog.table_exists(f"s.{name}"):
            dropped.append(point)
            shop.lake.sql("DROP SOURCE shop CASCADE")

    with monkeypatch.context() as patched:
        patched.setattr(batch, "failpoint", dropping)
        assert [*ingest(shop.lake)]
    assert dropped
    assert not shop.lake.catalog.table_exists(f"s.{name}")
    shop = NumberedShop(shop.lake, shop.directory)
    shop.table(name, "items")
    reports = shop.lake.ingest("shop")
    assert [stopped for report in reports for stopped in report.stopped] == []
    shop.written["items"] = BATCH
    assert shop.rows(name) == BATCH
