"""Rows and changes of a live MariaDB that Debezium would lose: lakehold names them, and a snapshot of all tables brings them."""

from __future__ import annotations

import pytest

from lakehold.errors import UpstreamError, UpstreamRefused
from lakehold.status import status_of
from tests.integration.test_live_mariadb import CREATING_ITEMS, Shop
from tests.integration.test_live_mariadb import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]


_MESSAGES = "SELECT kind, id, n FROM {} ORDER BY id"


def test_a_table_with_an_enum_in_its_key_is_complete_once_all_tables_are_snapshotted(shop: Shop) -> None:
    """Read a key whose order is not that of its text: Debezium would read the first 1,024 rows alone, and report success."""
    shop.server.execute(
        "USE more",
        "CREATE TABLE messages (kind ENUM('sms', 'email', 'push'), id INT, n INT, PRIMARY KEY (kind, id))",
        "INSERT INTO messages SELECT 1 + seq MOD 3, seq, 0 FROM seq_1_to_6000",
    )
    (hint,) = shop.lake.sql(
        "CREATE TABLE shop.messages FROM SOURCE shop (TABLE 'more.messages') ENVELOPE DEBEZIUM"
    ).notices
    assert "has kind (enum('sms','email','push')) in its primary key, by which Debezium would lose rows" in hint
    shop.server.execute("UPDATE more.messages SET n = 1 WHERE id = 1", "UPDATE shop.orders SET n = 2")
    shop.follow("shop.orders")
    assert not shop.is_readable("shop.messages")
    assert any("more.messages" in notice and "RESNAPSHOT" in notice for notice in status_of(shop.lake).notices)

    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    wait_for(lambda: shop.is_readable("shop.messages"), "all tables are snapshotted")
    shop.server.execute("DELETE FROM more.messages WHERE id = 2", "UPDATE shop.orders SET n = 3")
    shop.follow("shop.orders", "shop.customers")
    found = shop.lake.sql(_MESSAGES.format(f"{shop.lake.settings.catalog_name}.shop.messages")).rows
    assert [tuple(map(str, row)) for row in found] == shop.server.rows(_MESSAGES.format("more.messages"))
    assert status_of(shop.lake).notices == ()


def test_no_table_is_emptied_because_the_user_may_not_see_it_any_more(shop: Shop) -> None:
    may_read = "GRANT SELECT ON shop.customers TO lakehold@'%'"
    shop.server.execute("REVOKE SELECT ON *.* FROM lakehold@'%'", may_read)
    with pytest.raises(UpstreamRefused, match=r'may not read table "shop\.orders"'):
        shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    assert len(shop.rows("shop.orders")) == 3
    shop.server.execute("GRANT SELECT ON *.* TO lakehold@'%'", "DELETE FROM shop.orders WHERE id = 1")
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.follow("shop.orders", "shop.customers")


def test_changes_that_are_logged_as_statements_are_named_and_come_with_a_snapshot(shop: Shop) -> None:
    shop.server.execute("SET GLOBAL binlog_format = MIXED", "SET GLOBAL tx_isolation = 'REPEATABLE-READ'")
    shop.server.execute("UPDATE shop.orders SET n = 9", "INSERT INTO shop.orders VALUES (4, 4, NULL)")
    shop.server.execute("SET SESSION binlog_format = ROW", "UPDATE shop.customers SET n = 10")
    shop.follow("shop.customers")
    assert [n for _, n, _ in shop.rows("shop.orders")] == ["0", "0", "0"]
    (notice,) = status_of(shop.lake).notices
    assert "changes are lost while the database's setting binlog_format is MIXED" in notice
    with pytest.raises(UpstreamError) as refusal:
        shop.lake.sql(CREATING_ITEMS)
    assert refusal.value.code == "log-lossy"

    shop.server.execute("SET GLOBAL binlog_format = ROW")
    assert status_of(shop.lake).notices == ()
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.follow("shop.orders", "shop.customers")
