"""A MariaDB server is captured by statements alone, as PostgreSQL is."""

from __future__ import annotations

import time

import pytest

from lakehold.stack import StackAddresses
from lakehold.status import status_of
from tests.conftest import LakeFactory
from tests.mariadb_server import PASSWORD, MariaDb
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_ARRIVES_WITHIN_S = 60.0


def test_tables_are_captured_join_and_go(
    make_lake: LakeFactory, stack: StackAddresses, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", PASSWORD)
    for database in ("shop", "more"):
        mariadb.execute(f"CREATE DATABASE {database}")
    for table in ("shop.orders", "shop.customers", "more.items"):
        mariadb.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT, paid DECIMAL(10, 2))",
            f"INSERT INTO {table} VALUES (1, 0, 1.50), (2, 0, NULL), (3, 0, 99999999.99)",
        )
    lake = make_lake()
    lake.sql(
        f"CREATE CONNECTION kafka TO KAFKA (BROKER '{stack.kafka}');"
        f"CREATE CONNECTION maria TO MARIADB (HOST '127.0.0.1', PORT {mariadb.port}, USER 'lakehold', PASSWORD SECRET 'maria');"
        f"CREATE CONNECTION connect TO CONNECT (URL '{stack.connect}');"
        "CREATE SOURCE shop FROM MARIADB CONNECTION maria VIA CONNECT CONNECTION connect "
        "INTO KAFKA CONNECTION kafka (TOPIC PREFIX 'maria') FORMAT JSON;"
        "BEGIN;"
        "CREATE TABLE shop.orders FROM SOURCE shop (TABLE 'shop.orders') ENVELOPE DEBEZIUM;"
        "CREATE TABLE shop.customers FROM SOURCE shop (TABLE 'shop.customers') ENVELOPE DEBEZIUM UPSERT;"
        "COMMIT"
    )

    def follow(*tables: str) -> None:
        """Ingest until the lake's tables are the database's."""
        deadline = time.monotonic() + _ARRIVES_WITHIN_S
        while True:
            for report in lake.ingest("shop"):
                for error in report.stopped.values():
                    raise error
            found = {table: rows(table) for table in tables}
            wanted = {table: mariadb.rows(f"SELECT id, n, paid FROM {table} ORDER BY id") for table in tables}
            if found == wanted:
                return
            assert time.monotonic() < deadline, (found, wanted)

    def rows(table: str) -> list[tuple[str, ...]]:
        name = f"shop.{table.partition('.')[2]}"
        if lake.tables.table_state(name) is None:
            return []
        found = lake.sql(f"SELECT id, n, paid FROM {lake.settings.catalog_name}.{name} ORDER BY id").rows
        return [tuple("NULL" if value is None else str(value) for value in row) for row in found]

    follow("shop.orders", "shop.customers")
    mariadb.execute("UPDATE shop.orders SET n = 7 WHERE id < 3", "DELETE FROM shop.customers WHERE id = 3")
    follow("shop.orders", "shop.customers")

    lake.sql("CREATE TABLE shop.items FROM SOURCE shop (TABLE 'more.items') ENVELOPE DEBEZIUM")
    mariadb.execute("UPDATE more.items SET n = 5", "UPDATE shop.orders SET n = 8")
    follow("shop.orders", "shop.customers", "more.items")
    assert status_of(lake).notices == ()

    lake.sql("DROP SOURCE shop CASCADE")
