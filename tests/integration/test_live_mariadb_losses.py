"""Changes that a live MariaDB logs in a form that is lost: lakehold names them, and a snapshot of all tables brings them."""

from __future__ import annotations

import pytest

from lakehold.errors import UpstreamError
from lakehold.status import status_of
from tests.integration.test_live_mariadb import CREATING_ITEMS, Shop
from tests.integration.test_live_mariadb import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = [pytest.mark.stack, pytest.mark.spark]


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
