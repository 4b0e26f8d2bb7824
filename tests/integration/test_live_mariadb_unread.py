"""Statements of MariaDB that Debezium cannot read: they stop the table, or have it snapshotted, and the other tables continue."""

from __future__ import annotations

from typing import Any

import pytest

from lakehold.errors import NotReadable, TableStopped
from lakehold.status import status_of
from tests.integration.test_live_mariadb import CREATING_ITEMS, Shop
from tests.integration.test_live_mariadb import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name
from tests.runnable_pages import checked
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def _notices(shop: Shop) -> str:
    return "\n".join(status_of(shop.lake).notices)


def _status(shop: Shop, table: str) -> dict[str, Any]:
    found = status_of(shop.lake)
    return next(
        row for row in (dict(zip(found.columns, row, strict=True)) for row in found.rows) if row["table"] == table
    )


def _follow_without(shop: Shop, stopped: str) -> None:
    """Ingest until `shop.customers` equals the database's, and only `stopped` is stopped."""

    def is_equal() -> bool:
        assert {name for report in shop.lake.ingest("shop") for name in report.stopped} <= {stopped}
        return shop.rows("shop.customers") == shop.server.rows("SELECT id, n, paid FROM shop.customers ORDER BY id")

    wait_for(is_equal, "shop.customers continues")


def _follow_all(shop: Shop) -> None:
    """Ingest until both tables equal the database's; a table that was left out is stopped until it is snapshotted."""
    wait_for(lambda: not [report for report in shop.lake.ingest("shop") if report.stopped], "no table stops")
    wait_for(lambda: shop.ingest() >= 0 and _status(shop, "shop.orders")["state"] == "live", "shop.orders continues")
    shop.follow("shop.orders", "shop.customers")


@pytest.mark.soak
def test_a_table_that_becomes_system_versioned_is_left_out_until_it_is_none_any_more(shop: Shop) -> None:
    (documented,) = checked("docs/operate/unreadable-statements.md", by=__file__)
    shop.server.execute(
        "ALTER TABLE more.items ADD SYSTEM VERSIONING",
        "UPDATE more.items SET n = 1",
        documented.strip().removesuffix(";"),
        "UPDATE shop.orders SET n = 1",
        "UPDATE shop.customers SET n = 2",
    )
    snapshots = shop.connector.events("shop.customers")["r"]
    _follow_without(shop, "shop.orders")
    assert "table shop.orders is a system-versioned table" in _notices(shop)
    assert "ALTER TABLE shop.orders DROP SYSTEM VERSIONING" in _notices(shop)
    assert "more.items" not in _notices(shop)
    before = _status(shop, "shop.orders")
    assert before["stopped_by"].startswith('table-left-out: table "shop.orders" gets no more changes')

    shop.server.execute("DELETE FROM shop.orders WHERE id = 2", "UPDATE shop.customers SET n = 3")
    _follow_without(shop, "shop.orders")
    assert _status(shop, "shop.orders")["upper"] == before["upper"]
    upper_ms = shop.lake.timelines.of(["shop.customers"])["shop.customers"].upper_ms
    with pytest.raises(NotReadable, match=r'"shop\.orders" is not readable'):
        shop.lake.sql(f"SUBSCRIBE shop.orders AS OF {upper_ms - 1} UP TO {upper_ms}")
    with pytest.raises(TableStopped):
        shop.lake.verify("shop.orders")
    assert shop.connector.events("shop.customers")["r"] == snapshots, "the neighbour was not snapshotted"

    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.server.execute("UPDATE shop.customers SET n = 4")
    _follow_without(shop, "shop.orders")
    assert len(shop.rows("shop.orders")) == 3, "a snapshot without the table does not empty it"

    shop.server.execute(
        "ALTER TABLE shop.orders DROP SYSTEM VERSIONING",
        "UPDATE shop.orders SET n = 4",
        "UPDATE shop.customers SET n = 5",
    )
    _follow_all(shop)
    (stop,) = shop.lake.timelines.of(["shop.orders"])["shop.orders"].stops
    assert stop.until_ms >= upper_ms, "the times at which it lacked changes are not readable"
    shop.server.execute("UPDATE shop.orders SET n = 6 WHERE id = 1", "DELETE FROM shop.customers WHERE id = 2")
    shop.follow("shop.orders", "shop.customers")
    assert _notices(shop) == ""


@pytest.mark.soak
def test_a_table_that_was_left_out_between_two_ingests_waits_for_its_snapshot(shop: Shop) -> None:
    shop.server.execute("ALTER TABLE shop.orders ADD SYSTEM VERSIONING")
    shop.lake.sql("ALTER SOURCE shop REPAIR")
    shop.server.execute("UPDATE shop.orders SET n = 1", "ALTER TABLE shop.orders DROP SYSTEM VERSIONING")

    def waits() -> bool:
        shop.lake.ingest("shop")
        return "waits for a snapshot" in (_status(shop, "shop.orders")["stopped_by"] or "")

    wait_for(waits, "the next inspection stops the table")
    _follow_all(shop)
    assert _notices(shop) == ""


@pytest.mark.soak
def test_a_column_is_added_by_a_statement_that_debezium_cannot_read(shop: Shop) -> None:
    for table in ("more.items", "shop.orders"):
        shop.server.execute(
            f"ALTER TABLE {table} ADD COLUMN c INT DEFAULT 7, ADD CONSTRAINT IF NOT EXISTS positive CHECK (n >= 0)",
            f"UPDATE {table} SET n = 1 WHERE id = 1",
        )
    shop.server.execute("UPDATE shop.customers SET n = 2")
    shop.follow("shop.orders", "shop.customers")
    shop.lake.sql(CREATING_ITEMS)
    shop.follow("shop.orders", "shop.customers", "more.items")
    for table in ("orders", "items"):
        found = shop.lake.sql(f"SELECT c FROM {shop.lake.settings.catalog_name}.shop.{table}").rows
        assert [*found] == [(7,)] * 3
    assert _notices(shop) == ""


def test_a_table_whose_definition_debezium_cannot_read_is_left_out(shop: Shop) -> None:
    period = "ADD COLUMN a DATE NOT NULL DEFAULT '2026-11-26', ADD COLUMN b DATE NOT NULL DEFAULT '2026-11-27'"
    shop.server.execute(
        f"ALTER TABLE shop.orders {period}, ADD PERIOD FOR valid (a, b)",
        "ALTER TABLE shop.orders DROP PRIMARY KEY, ADD PRIMARY KEY (id, valid WITHOUT OVERLAPS)",
        "UPDATE shop.orders SET n = 1",
        "UPDATE shop.customers SET n = 2",
    )
    _follow_without(shop, "shop.orders")
    shop.server.execute("UPDATE shop.customers SET n = 3")
    _follow_without(shop, "shop.orders")
    assert "table shop.orders has a definition that Debezium cannot read" in _notices(shop)
    assert len(shop.rows("shop.orders")) == 3, "readers see what the table had"

    shop.server.execute(
        "ALTER TABLE shop.orders DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
        "UPDATE shop.orders SET n = 4",
        "UPDATE shop.customers SET n = 5",
    )
    _follow_all(shop)
    assert _notices(shop) == ""


def test_a_statement_that_debezium_cannot_read_and_that_defines_no_table_changes_nothing(shop: Shop) -> None:
    sent = shop.connector.events("shop.orders")
    shop.server.execute(
        "INSTALL SONAME 'auth_ed25519'",
        "CREATE USER other@'%' IDENTIFIED VIA ed25519 USING PASSWORD('lakehold')",
        "ALTER TABLE shop.orders PARTITION BY KEY() PARTITIONS 3",
        "ALTER TABLE shop.orders ADD CONSTRAINT IF NOT EXISTS positive CHECK (n >= 0)",
        "UPDATE shop.orders SET n = 1",
    )
    shop.follow("shop.orders", "shop.customers")
    assert shop.connector.events("shop.orders")["r"] == sent["r"], "no snapshot was needed"
    assert _notices(shop) == ""


def test_a_table_that_debezium_does_not_know_takes_the_place_of_a_captured_one(shop: Shop) -> None:
    shop.server.execute(
        "CREATE TABLE shop.stage (id INT PRIMARY KEY, n INT, m INT, paid DECIMAL(10, 2))",
        "CREATE OR REPLACE TABLE shop.stage (id INT PRIMARY KEY, m INT, n INT, paid DECIMAL(10, 2))",
        "INSERT INTO shop.stage SELECT id, 100, n, paid FROM shop.orders",
        "RENAME TABLE shop.orders TO shop.orders_old, shop.stage TO shop.orders",
    )
    shop.follow("shop.orders", "shop.customers")
    shop.server.execute("UPDATE shop.orders SET n = 5 WHERE id = 1")
    shop.follow("shop.orders", "shop.customers")
    found = shop.lake.sql(f"SELECT m FROM {shop.lake.settings.catalog_name}.shop.orders").rows
    assert [*found] == [(100,)] * 3
