"""A MariaDB server is captured by statements alone, as PostgreSQL is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.stack import ConnectClient, StackAddresses
from lakehold.status import status_of
from tests.conftest import LakeFactory
from tests.mariadb_server import PASSWORD, MariaDb
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_ARRIVES_WITHIN_S = 60.0

CREATING_ITEMS = "CREATE TABLE shop.items FROM SOURCE shop (TABLE 'more.items') ENVELOPE DEBEZIUM"


class Shop:
    """The source `shop` over two databases of a server: it captures `orders` and `customers`; `more.items` is there."""

    def __init__(self, lake: Lake, stack: StackAddresses, server: MariaDb) -> None:
        self.lake, self.server = lake, server
        for database in ("shop", "more"):
            server.execute(f"CREATE DATABASE {database}")
        for table in ("shop.orders", "shop.customers", "more.items"):
            server.execute(
                f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT, paid DECIMAL(10, 2))",
                f"INSERT INTO {table} VALUES (1, 0, 1.50), (2, 0, NULL), (3, 0, 99999999.99)",
            )
        lake.sql(
            f"CREATE CONNECTION kafka TO KAFKA (BROKER '{stack.kafka}');"
            f"CREATE CONNECTION maria TO MARIADB (HOST '127.0.0.1', PORT {server.port}, USER 'lakehold', "
            "PASSWORD SECRET 'maria');"
            f"CREATE CONNECTION connect TO CONNECT (URL '{stack.connect}');"
            "CREATE SOURCE shop FROM MARIADB CONNECTION maria VIA CONNECT CONNECTION connect "
            "INTO KAFKA CONNECTION kafka (TOPIC PREFIX 'maria') FORMAT JSON;"
            "BEGIN;"
            "CREATE TABLE shop.orders FROM SOURCE shop (TABLE 'shop.orders') ENVELOPE DEBEZIUM;"
            "CREATE TABLE shop.customers FROM SOURCE shop (TABLE 'shop.customers') ENVELOPE DEBEZIUM UPSERT;"
            "COMMIT"
        )

    def ingest(self) -> int:
        """How many batches changed tables; none stops one."""
        reports = self.lake.ingest("shop")
        for report in reports:
            for error in report.stopped.values():
                raise error
        return sum(bool(report.tables) for report in reports)

    def follow(self, *tables: str) -> None:
        """Ingest until the lake's tables are the database's."""
        deadline = time.monotonic() + _ARRIVES_WITHIN_S
        while True:
            self.ingest()
            found = {table: self.rows(table) for table in tables}
            wanted = {table: self.server.rows(f"SELECT id, n, paid FROM {table} ORDER BY id") for table in tables}
            if found == wanted:
                return
            assert time.monotonic() < deadline, (found, wanted)

    def rows(self, table: str) -> list[tuple[str, ...]]:
        name = f"shop.{table.partition('.')[2]}"
        if self.lake.tables.table_state(name) is None:
            return []
        found = self.lake.sql(f"SELECT id, n, paid FROM {self.lake.settings.catalog_name}.{name} ORDER BY id").rows
        return [tuple("NULL" if value is None else str(value) for value in row) for row in found]

    def is_readable(self, table: str) -> bool:
        """Whether it has a `since`."""
        self.ingest()
        found = status_of(self.lake)
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
        return any(row["table"] == table and row["since"] is not None for row in rows)


@pytest.fixture
def shop(
    make_lake: LakeFactory, stack: StackAddresses, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", PASSWORD)
    found = Shop(make_lake(), stack, mariadb)
    found.follow("shop.orders", "shop.customers")
    yield found
    found.lake.sql("DROP SOURCE shop CASCADE")


def test_tables_are_captured_and_join(shop: Shop) -> None:
    shop.server.execute("UPDATE shop.orders SET n = 7 WHERE id < 3", "DELETE FROM shop.customers WHERE id = 3")
    shop.follow("shop.orders", "shop.customers")

    shop.lake.sql(CREATING_ITEMS)
    shop.server.execute("UPDATE more.items SET n = 5", "UPDATE shop.orders SET n = 8")
    shop.follow("shop.orders", "shop.customers", "more.items")
    assert status_of(shop.lake).notices == ()


def test_a_table_goes_and_comes_again_while_changes_run(shop: Shop) -> None:
    shop.lake.sql(CREATING_ITEMS)
    shop.follow("shop.orders", "more.items")
    closed = Event()
    with ThreadPoolExecutor(1) as threads:
        trading = threads.submit(_trade, shop.server, closed)
        try:
            shop.lake.sql("DROP TABLE shop.items")
            while not shop.ingest():
                pass
            shop.lake.sql(CREATING_ITEMS)
            deadline = time.monotonic() + _ARRIVES_WITHIN_S
            while not shop.is_readable("shop.items"):
                assert time.monotonic() < deadline
            while shop.ingest() < 1:
                pass
        finally:
            closed.set()
        assert trading.result() > 0
    shop.follow("shop.orders", "more.items")

    since_ms = max(line.since_ms for line in shop.lake.timelines.of(["shop.orders", "shop.items"]).values())
    times = [b.mz_timestamp for b in shop.lake.batches.history("shop") if b.mz_timestamp >= since_ms and b.records]
    assert times
    for time_ms in times:
        orders, items = (shop.lake.sql(f"SELECT id, n FROM shop.{t} AS OF {time_ms}").rows for t in ("orders", "items"))
        assert sorted(orders) == sorted(items), "each transaction changes both alike"


def _trade(server: MariaDb, closed: Event) -> int:
    """Change a row of two tables in one transaction, again and again; returns how often."""
    count = 0
    while not closed.wait(0.01):
        changes = (
            f"UPDATE {table} SET n = n + 1 WHERE id = {count % 3 + 1}" for table in ("shop.orders", "more.items")
        )
        server.execute("BEGIN", *changes, "COMMIT")
        count += 1
    return count


def test_a_database_that_does_not_let_connect_in_is_told_before_anything_is_declared(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", "another")
    with pytest.raises(LakeholdError) as refusal:
        shop.lake.sql(CREATING_ITEMS)
    assert refusal.value.message == 'Kafka Connect refuses the configuration of connector "maria"'
    assert "Access denied for user 'lakehold'" in refusal.value.detail
    assert "shop.items" not in shop.lake.definitions.definitions().tables
    (told,) = status_of(shop.lake).notices
    assert told.startswith('source shop: Kafka Connect refuses the configuration of connector "maria": ')
    shop.ingest()
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", PASSWORD)
    assert status_of(shop.lake).notices == ()


def test_changes_of_a_table_that_was_out_of_the_connectors_list_come(shop: Shop, stack: StackAddresses) -> None:
    with ConnectClient(stack.connect) as worker:
        config = worker.config("maria")
        assert config is not None
        worker.stop("maria")
        worker.put("maria", {**config, "table.include.list": r"shop\.customers"})
        worker.resume("maria")
        worker.wait_until_running("maria")
    for table in ("shop.orders", "shop.customers"):
        shop.server.execute(
            f"UPDATE {table} SET n = 5 WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 2",
            f"INSERT INTO {table} VALUES (4, 0, 4.50)",
        )
    shop.follow("shop.customers")
    (notice,) = (notice for notice in shop.lake.sql("ALTER SOURCE shop REPAIR").notices if "missed" in notice)
    assert "shop.orders" in notice
    shop.follow("shop.orders", "shop.customers")
    assert status_of(shop.lake).notices == ()
