"""Captured tables without rows exist in the lake with the database's columns once their snapshot is complete."""

from __future__ import annotations

import pytest

from lakehold.lake import Lake
from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.integration.test_live_mariadb import Shop as MariaDbShop
from tests.integration.test_live_mariadb import shop as mariadb_shop  # noqa: F401 - as above
from tests.live_source import execute
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - as above
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def schema(lake: Lake, table: str) -> list[tuple[str, str]]:
    """Return the names and types of a table's columns."""
    fields = lake.catalog.load_table(table).schema().fields
    return [(field.name, str(field.field_type)) for field in fields]


def count(lake: Lake, table: str) -> int:
    ((rows,),) = lake.sql(f"SELECT count(*) FROM {lake.settings.catalog_name}.{table}").rows
    return int(rows)


def test_empty_tables_of_postgresql_exist_in_the_lake(shop: Shop) -> None:
    lake = shop.lake
    shop.upstream("orders")
    of_columns = (
        "b int NOT NULL, a text NOT NULL, c bigint, d numeric(12, 2), e numeric, f timestamptz, g timestamp(3), h date,"
        " i uuid, j jsonb, k boolean, l real, m double precision, n bytea, o int[], p smallint, PRIMARY KEY (a, b)"
    )
    execute(
        shop.database,
        [
            statement
            for table in ("first", "joins", "truncated")
            for statement in (
                f"CREATE TABLE {table} ({of_columns})",
                f"ALTER TABLE {table} REPLICA IDENTITY FULL",
            )
        ],
    )
    lake.sql(f"BEGIN; {shop.creating('orders')}; {shop.creating('first')}; CREATE HOLD waits ON shop.first; COMMIT")
    shop.follow_until_readable("first")
    shop.follow_until_equal("orders")
    line = lake.timelines.of(["shop.first"])["shop.first"]
    assert lake.sql("SELECT at FROM mz_catalog.mz_holds").rows == [(line.since_ms,)]
    assert count(lake, "shop.first") == 0
    assert lake.sql(f"SUBSCRIBE shop.first AS OF {line.since_ms} UP TO {line.upper_ms}").rows == []
    assert lake.sql(f"SELECT count(*) FROM shop.first AS OF {line.since_ms}").rows == [(0,)]

    lake.sql(f"BEGIN; {shop.creating('joins')}; {shop.creating('truncated')}; COMMIT")
    execute(shop.database, ["UPDATE orders SET n = 1"])
    for table in ("joins", "truncated"):
        shop.follow_until_readable(table)
    empty = schema(lake, "shop.first")
    assert schema(lake, "shop.joins") == empty

    execute(
        shop.database,
        [
            "TRUNCATE truncated",
            *(
                f"INSERT INTO {table} SELECT 1, 'x', 2, 3.25, 4.5, now(), now(), now(), gen_random_uuid(), '{{}}', true, 5.5,"
                " 6.5, '\\x00', '{7}', 8"
                for table in ("first", "joins", "truncated")
            ),
        ],
    )

    def have(rows: int) -> bool:
        for report in lake.ingest("shop"):
            for error in report.stopped.values():
                raise error
        return all(count(lake, f"shop.{table}") == rows for table in ("first", "joins", "truncated"))

    wait_for(lambda: have(1), "each table has its first row")
    for table in ("first", "joins", "truncated"):
        assert schema(lake, f"shop.{table}") == empty, (
            "the columns that the database declares equal those of the messages"
        )
    assert lake.sql(f"SELECT count(*) FROM shop.first AS OF {line.since_ms}").rows == [(0,)]


def test_captured_tables_follow_truncate_unless_they_are_declared_to_ignore_it(shop: Shop) -> None:
    shop.upstream("orders", "items", "log")
    shop.lake.sql(
        f"BEGIN; {shop.creating('orders')}; {shop.creating('items', 'DEBEZIUM UPSERT')};"
        f"{shop.creating('log')} WITH (TRUNCATE = 'ignore'); COMMIT"
    )
    shop.follow_until_equal("orders", "items", "log")
    rows = shop.rows("log")
    execute(shop.database, ["TRUNCATE orders, items, log", "INSERT INTO orders VALUES (7, 7, 'later')"])
    shop.follow_until_equal("orders", "items")
    assert shop.rows("log") == rows
    assert all(shop.lake.verify(f"shop.{table}").is_equal for table in ("orders", "items"))
    found = shop.lake.verify("shop.log")
    assert found.different == len(rows)
    assert found.reasons[0].startswith("shop.log ignores TRUNCATE")


@pytest.mark.soak
def test_empty_tables_of_mariadb_exist_in_the_lake(mariadb_shop: MariaDbShop) -> None:  # noqa: F811
    shop = mariadb_shop
    of_columns = (
        "a VARCHAR(20), b INT, c BIGINT UNSIGNED, d DECIMAL(12, 2), e DATETIME(3), f TIMESTAMP NULL, g DATE, h TIME(6),"
        " i JSON, j TINYINT(1), k FLOAT, l DOUBLE, m BLOB, n ENUM('x', 'y'), o YEAR, p BIT(1), PRIMARY KEY (b, a)"
    )
    shop.server.execute(f"CREATE TABLE more.none ({of_columns})")
    shop.lake.sql("CREATE TABLE shop.none FROM SOURCE shop (TABLE 'more.none') ENVELOPE DEBEZIUM")
    wait_for(lambda: shop.is_readable("shop.none"), "the table that joined is readable")
    empty = schema(shop.lake, "shop.none")
    assert count(shop.lake, "shop.none") == 0
    shop.server.execute(
        "TRUNCATE TABLE more.none",
        "INSERT INTO more.none VALUES ('x', 1, 2, 3.25, NOW(3), NOW(), NOW(), '10:00:00', '{}', 1, 5.5, 6.5, 'b', 'y', 2026, 1)",
    )

    def has_row() -> bool:
        shop.ingest()
        return count(shop.lake, "shop.none") == 1

    wait_for(has_row, "the table has its first row")
    assert schema(shop.lake, "shop.none") == empty, "the columns that the database declares equal those of the messages"
