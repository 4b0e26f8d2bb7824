"""A captured table is compared with its MariaDB, in every type, while it changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from lakehold.errors import LakeholdError
from lakehold.stack import StackAddresses
from lakehold.verify.comparison import Side
from tests.captured_types import MARIADB
from tests.conftest import LakeFactory
from tests.mariadb_server import PASSWORD, MariaDb
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_LENIENT = "SET sql_mode = '', time_zone = '+00:00', NAMES utf8mb4"


@pytest.mark.soak
def test_tables_of_mariadb_are_compared(
    make_lake: LakeFactory, stack: StackAddresses, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", PASSWORD)
    lake = make_lake()
    given = [column for column in MARIADB if column.value]
    names, values = ", ".join(c.name for c in given), ", ".join(c.value for c in given)
    mariadb.execute(
        "CREATE DATABASE shop",
        _LENIENT,
        f"CREATE TABLE shop.wide (id int PRIMARY KEY, {', '.join(f'{c.name} {c.type}' for c in MARIADB)})",
        f"INSERT INTO shop.wide (id, {names}) VALUES (1, {values})",
        "INSERT INTO shop.wide (id) VALUES (2)",
        "CREATE TABLE shop.orders "
        "(id INT, `key` VARCHAR(20), n INT, `on` TIME(3), `50%s` INT DEFAULT 5, PRIMARY KEY (`key`, id))",
        "INSERT INTO shop.orders (id, `key`, n, `on`) "
        "SELECT seq, CONCAT('a\"b\n', seq % 7), 0, '01:02:03.5' FROM shop.seq_1_to_2000",
    )
    lake.sql(
        f"{mariadb.declaring(stack, 'shop', 'verified')};"
        "BEGIN; CREATE TABLE shop.wide FROM SOURCE shop (TABLE 'shop.wide') ENVELOPE DEBEZIUM;"
        "CREATE TABLE shop.orders FROM SOURCE shop (TABLE 'shop.orders') ENVELOPE DEBEZIUM; COMMIT"
    )

    def is_readable() -> bool:
        lake.ingest("shop")
        return {"shop.wide", "shop.orders"} == lake.timelines.readable(["shop.wide", "shop.orders"]).keys()

    wait_for(is_readable, "the tables are readable")
    assert lake.verify("shop.orders").differences == ()
    mariadb.execute(_LENIENT, f"INSERT INTO shop.wide (id, {names}) VALUES (3, {values})")
    found = lake.verify("shop.wide")
    assert {each.key[0]: {*each.columns} for each in found.differences} == {"1": {"seven_digits"}}
    assert found.reasons[0].startswith("column seven_digits (float): in a snapshot digits after the sixth are rounded")
    assert {column.name for column in found.skipped} == {"place", "area"}

    def trade(closed: Event) -> int:
        count = 0
        while not closed.wait(0.01):
            count += 1
            mariadb.execute(
                f"UPDATE shop.orders SET n = n + 1 WHERE id = {count % 100 + 1}",
                f"DELETE FROM shop.orders WHERE id = {count % 100 + 200}",
            )
        return count

    table = f"{lake.settings.catalog_name}.shop.orders"
    closed = Event()
    with ThreadPoolExecutor(1) as threads:
        trading = threads.submit(trade, closed)
        try:
            assert lake.verify("shop.orders").is_equal
            lake.spark.sql(f"UPDATE {table} SET n = 5 WHERE id = 1999")
            lake.spark.sql(f"DELETE FROM {table} WHERE id = 1000")
            found = lake.verify("shop.orders")
        finally:
            closed.set()
        assert trading.result() > 0
    assert {each.key: each.side for each in found.differences} == {
        ('a"b\n4', "1999"): Side.VALUES_DIFFER,
        ('a"b\n6', "1000"): Side.ONLY_IN_DATABASE,
    }

    mariadb.execute("REVOKE SELECT ON *.* FROM lakehold@'%'")
    with pytest.raises(LakeholdError) as refused:
        lake.verify("shop.orders")
    assert refused.value.code == "upstream-table-missing"
    assert (
        refused.value.hint
        == "If it is there, let user lakehold read it: GRANT SELECT. If it was dropped, DROP TABLE shop.orders."
    )
    mariadb.execute("GRANT SELECT ON *.* TO lakehold@'%'")
    lake.sql("DROP SOURCE shop CASCADE")
