"""Somebody changes what a captured table needs upstream: lakehold fetches the missed changes, or says how to get them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from lakehold.errors import LakeholdError, NotReadable, TableStopped
from lakehold.stack import ConnectClient
from lakehold.status import status_of
from tests.captured_shop import Shop
from tests.conftest import LakeFactory
from tests.live_source import execute
from tests.stack_fixtures import SourceDatabase
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture
def shop(make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Capture the orders and the items of a shop, each under a different envelope."""
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(make_lake, database)
    shop.upstream("orders", "items")
    shop.lake.sql(f"BEGIN; {shop.creating('orders')}; {shop.creating('items', 'DEBEZIUM UPSERT')}; COMMIT")
    for table in ("orders", "items"):
        shop.follow_until_readable(table)
    yield shop
    shop.close()


_UNSEEN = (
    "UPDATE {} SET n = 5 WHERE id < 50",
    "INSERT INTO {} VALUES (900, 9, 'unseen')",
    "DELETE FROM {} WHERE id BETWEEN 100 AND 120",
)


def _change(shop: Shop, *tables: str) -> None:
    execute(shop.database, [change.format(table) for table in tables for change in _UNSEEN])


def test_changes_of_tables_that_were_out_of_the_publication_are_fetched(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    since = shop.since("orders")
    execute(shop.database, ["ALTER PUBLICATION lake DROP TABLE orders, items"])
    _change(shop, "orders", "items")
    assert shop.steps("ALTER SOURCE shop REPAIR") == [
        "stop connector shop",
        "snapshot of public.items alone",
        "snapshot of public.orders alone",
        "publication lake: add public.items, public.orders",
        "record that public.items, public.orders are in publication lake",
        "start connector shop",
    ]
    shop.reopen()
    with caplog.at_level(logging.WARNING):
        list(shop.lake.ingest("shop"))
        notices = status_of(shop.lake).notices
        shop.follow_until_equal("orders", "items")
    assert "changes of public.orders were missed" in caplog.text
    assert any("rows may be outdated or no longer exist upstream" in notice for notice in notices)
    assert shop.since("orders") == since

    # A statement repairs the source beside an ingest, before the lake has read the last change.
    execute(shop.database, ["INSERT INTO orders VALUES (901, 9, 'seen')"])
    execute(shop.database, ["ALTER PUBLICATION lake DROP TABLE orders"])
    execute(shop.database, ["DELETE FROM orders WHERE id < 50 OR id = 901"])
    shop.lake.sql("ALTER SOURCE shop REPAIR")
    wait_for(lambda: shop.events("orders")["ad hoc"] >= 180 + 131, "the remaining rows have arrived")
    shop.follow_until_equal("orders", "items")
    shop.follow_until_nothing_is_reported()


@pytest.mark.soak
def test_changes_of_tables_that_were_out_of_the_publication_between_inspections_are_fetched(shop: Shop) -> None:
    execute(shop.database, ["ALTER PUBLICATION lake DROP TABLE orders"])
    _change(shop, "orders", "items")
    execute(shop.database, ["ALTER PUBLICATION lake ADD TABLE orders"])
    assert shop.steps("ALTER SOURCE shop REPAIR") == [
        "stop connector shop",
        "snapshot of public.orders alone",
        "record that public.orders is in publication lake",
        "start connector shop",
    ]
    shop.reopen()
    shop.follow_until_equal("orders", "items")


_MADE_AGAIN = "CREATE PUBLICATION lake FOR TABLE orders, items WITH (publish_via_partition_root = true)"


@pytest.mark.soak
def test_tables_of_a_publication_created_again_at_once_are_snapshotted_again(shop: Shop) -> None:
    execute(shop.database, ["DROP PUBLICATION lake", _MADE_AGAIN])
    _change(shop, "orders", "items")
    shop.reopen()
    shop.follow_until_equal("orders", "items")
    wait_for(lambda: all(shop.events(table)["ad hoc"] >= 180 for table in ("orders", "items")), "all rows arrive again")


def test_a_publication_created_again_after_changes_is_lost(shop: Shop) -> None:
    execute(shop.database, ["DROP PUBLICATION lake"])
    _change(shop, "orders", "items")
    execute(shop.database, [_MADE_AGAIN])
    shop.reopen()

    with pytest.raises(LakeholdError, match="publication") as refusal:
        shop.lake.ingest("shop")
    assert refusal.value.code == "publication-lost"
    assert "ALTER SOURCE shop RESNAPSHOT" in refusal.value.hint
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.follow_until_equal("orders", "items")
    _change_more(shop)
    shop.follow_until_equal("orders", "items")


def test_a_table_created_again_under_its_name_has_no_rows_of_the_earlier_one(shop: Shop) -> None:
    execute(shop.database, ["DROP TABLE items"])
    shop.upstream("items", rows=20)
    execute(shop.database, ["ALTER PUBLICATION lake ADD TABLE items"])
    shop.reopen()
    shop.follow_until_equal("orders", "items")


@pytest.mark.soak
def test_changes_of_a_table_that_the_connector_excluded_are_fetched(shop: Shop) -> None:
    name = shop.database.name
    with ConnectClient(shop.database.addresses.connect) as worker:
        config = worker.config(name)
        assert config is not None
        worker.stop(name)
        worker.put(name, {**config, "table.include.list": r"public\.items"})
        worker.resume(name)
        worker.wait_until_running(name)
    _change(shop, "orders")
    _change(shop, "items")
    shop.wait_for_events("items", {"r": 200, "u": 49, "c": 1, "d": 21})
    execute(shop.database, ["DELETE FROM items WHERE id = 900"])
    shop.wait_for_events("items", {"r": 200, "u": 49, "c": 1, "d": 22})
    result = shop.lake.sql("ALTER SOURCE shop REPAIR")
    (notice,) = (notice for notice in result.notices if "missed" in notice)
    assert "public.orders" in notice
    shop.reopen()
    shop.follow_until_equal("orders", "items")


def test_a_dropped_publication_stops_the_source_until_all_tables_are_snapshotted_again(shop: Shop) -> None:
    execute(shop.database, ["DROP PUBLICATION lake"])
    _change(shop, "orders", "items")
    execute(shop.database, ["DELETE FROM orders WHERE id BETWEEN 100 AND 120"])
    shop.reopen()
    with pytest.raises(LakeholdError) as refusal:
        shop.lake.ingest("shop")
    assert refusal.value.code == "publication-lost"
    assert "ALTER SOURCE shop RESNAPSHOT" in refusal.value.hint
    (problem,) = status_of(shop.lake).notices
    assert 'publication "lake" is lost' in problem

    assert shop.steps("ALTER SOURCE shop RESNAPSHOT") == [
        "stop connector shop",
        "connector shop: forget its position",
        "drop replication slot shop",
        "create publication lake for public.items, public.orders",
        "record that public.items, public.orders are in publication lake",
        "create table lakehold_signals.of_shop in publication lake, and schema lakehold_signals unless it exists",
        "first snapshot: public.items, public.orders",
        "start connector shop",
    ]
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.follow_until_equal("orders", "items")
    _change_more(shop)
    shop.follow_until_equal("orders", "items")
    shop.follow_until_nothing_is_reported()


def test_a_table_dropped_upstream_stops_alone_until_its_hint_is_followed(shop: Shop) -> None:
    execute(shop.database, ["DROP TABLE items"])
    shop.upstream("customers")
    _change(shop, "orders")
    shop.reopen()
    dropped = _follow_without(shop, "items", "orders")
    assert dropped.detail == "It was dropped."
    assert dropped.hint.startswith("DROP TABLE shop.items, or leave it for its history.")
    (problem,) = status_of(shop.lake).notices
    assert "public.items is not in the database any more" in problem

    with pytest.raises(LakeholdError) as refusal:
        shop.lake.sql("CREATE TABLE shop.more FROM SOURCE shop (TABLE 'public.items') ENVELOPE DEBEZIUM")
    assert refusal.value.code == "upstream-table-missing"
    assert shop.lake.sql(shop.creating("customers")).notices == (), "its notices are about customers only"
    before = shop.upper_ms("items")
    _follow_without(shop, "items", "orders", "customers")
    _change_more(shop)
    _follow_without(shop, "items", "orders")
    assert shop.upper_ms("items") == before
    with pytest.raises(NotReadable, match=r'"shop\.items" is not readable'):
        shop.lake.sql(f"SUBSCRIBE shop.items AS OF {shop.upper_ms('orders') - 1} UP TO {shop.upper_ms('orders')}")

    shop.upstream("items", rows=20)
    _follow_until_whole(shop, "items")
    (stop,) = shop.lake.timelines.of(["shop.items"])["shop.items"].stops
    assert stop.from_ms == before, "the times at which nobody captured it are not readable"


@pytest.mark.soak
def test_a_table_renamed_upstream_stops_alone_until_its_hint_is_followed(shop: Shop) -> None:
    execute(shop.database, ["ALTER TABLE items RENAME TO sold", "DELETE FROM sold WHERE id < 5"])
    shop.reopen()
    back = re.search(r"ALTER TABLE public\.sold RENAME TO \w+", _follow_without(shop, "items", "orders").hint)
    assert back is not None
    execute(shop.database, [back[0], "INSERT INTO items VALUES (900, 9, 'back')"])
    _follow_until_whole(shop, "items")

    execute(shop.database, ["ALTER TABLE items RENAME TO sold", "DELETE FROM sold WHERE id < 10"])
    shop.lake.sql(_follow_without(shop, "items", "orders").hint.partition(". Or")[0])
    _follow_until_whole(shop, "sold")
    shop.follow_until_nothing_is_reported()


def _follow_without(shop: Shop, stopped: str, *tables: str) -> LakeholdError:
    """Ingest until `tables` equal the database's, and `stopped` is the only table that stopped; returns its error."""
    errors: dict[str, LakeholdError] = {}

    def is_equal() -> bool:
        errors.clear()
        errors.update({name: error for report in shop.lake.ingest("shop") for name, error in report.stopped.items()})
        assert errors.keys() <= {f"shop.{stopped}"}
        return bool(errors) and all(shop.rows(table) == shop.wanted(table) for table in tables)

    wait_for(is_equal, "the other tables continue")
    (error,) = errors.values()
    assert error.code == "table-gone"
    with pytest.raises(TableStopped):
        shop.lake.verify(f"shop.{stopped}")
    return error


def _follow_until_whole(shop: Shop, table: str) -> None:
    """Ingest until a table is in sync with the others: then it equals the database's at once."""
    wait_for(
        lambda: not any(report.stopped for report in shop.lake.ingest("shop")) and shop.state(table) == "live",
        f"{table} continues",
    )
    assert shop.lake.verify(f"shop.{table}").is_equal
    assert shop.rows(table) == shop.wanted(table)


@pytest.mark.soak
def test_joining_tables_without_a_primary_key_get_a_hint_how_to_fetch_their_rows(shop: Shop) -> None:
    for table in ("keyless", "keyed_later"):
        execute(
            shop.database,
            [
                f"CREATE TABLE {table} (id int NOT NULL, n int, note text)",
                f"ALTER TABLE {table} REPLICA IDENTITY FULL",
                f"INSERT INTO {table} SELECT i, 0, 'x' FROM generate_series(1, 20) i",
            ],
        )
        (notice,) = shop.lake.sql(f"{shop.creating(table, 'DEBEZIUM UPSERT')} KEY (id)").notices
        assert f"table public.{table} has no primary key" in notice
        assert "ALTER SOURCE shop RESNAPSHOT" in notice

    execute(shop.database, ["ALTER TABLE keyed_later ADD PRIMARY KEY (id)"])
    wait_for(
        lambda: shop.steps("ALTER SOURCE shop REPAIR")[1:2] == ["snapshot of public.keyed_later alone"],
        "the connector reports that it could not snapshot the table",
    )
    shop.lake.sql("ALTER SOURCE shop REPAIR")
    shop.follow_until_equal("keyed_later")
    assert shop.lake.sql("ALTER SOURCE shop RESNAPSHOT").notices == (), "nothing is left to do"
    shop.follow_until_equal("keyless", "keyed_later", "orders", "items")
    wait_for(lambda: bool(shop.lake.ingest("shop")) and shop.since("keyless") is not None, "keyless is readable")

    execute(shop.database, ["ALTER PUBLICATION lake DROP TABLE keyless", "DELETE FROM keyless WHERE id = 7"])
    shop.lake.sql("ALTER SOURCE shop REPAIR")
    shop.reopen()
    (problem,) = status_of(shop.lake).notices
    assert "changes of public.keyless were missed" in problem
    assert "ALTER SOURCE shop RESNAPSHOT" in problem
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.follow_until_nothing_is_reported()
    shop.follow_until_equal("keyless", "orders", "items")


def _change_more(shop: Shop) -> None:
    execute(shop.database, ["UPDATE orders SET n = n + 1", "DELETE FROM orders WHERE id = 150"])
