"""New and renamed columns of MariaDB: a snapshot of their table brings the values that its messages lack."""

from __future__ import annotations

import pytest

from tests.integration.test_live_mariadb import Shop
from tests.integration.test_live_mariadb import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def test_values_that_a_new_or_renamed_column_has_in_older_rows_come_with_a_snapshot_of_its_table_alone(
    shop: Shop,
) -> None:
    sent = len(shop.connector.sent_ms("shop.customers"))

    def follow(columns: str) -> None:
        name = f"{shop.lake.settings.catalog_name}.shop.orders"

        def is_equal() -> bool:
            shop.ingest()
            state = shop.lake.tables.table_state("shop.orders")
            if state is None or not set(columns.split(", ")) <= {field.name for field in state.schema.fields}:
                return False
            found = shop.lake.sql(f"SELECT {columns} FROM {name} ORDER BY id").rows
            texts = [tuple("NULL" if value is None else str(value) for value in row) for row in found]
            return texts == shop.server.rows(f"SELECT {columns} FROM shop.orders ORDER BY id")

        wait_for(is_equal, f"{columns} are equal")

    shop.server.execute(
        "ALTER TABLE shop.orders ADD COLUMN plain INT",
        "UPDATE shop.orders SET n = 1 WHERE id = 1",
    )
    follow("id, n, plain")
    assert shop.connector.requested_snapshots() == 0
    shop.server.execute(
        "ALTER TABLE shop.orders ADD COLUMN c INT DEFAULT 5, ADD COLUMN d INT NOT NULL",
        "ALTER TABLE shop.orders ALTER COLUMN c SET DEFAULT 7",
        "UPDATE shop.orders SET n = 1 WHERE id = 2",
    )
    follow("id, n, c, d")
    assert shop.connector.requested_snapshots() == 1
    shop.server.execute(
        "ALTER TABLE shop.orders RENAME COLUMN paid TO price",
        "UPDATE shop.orders SET n = 1 WHERE id = 3",
    )
    follow("id, n, price")
    assert shop.connector.requested_snapshots() == 2
    assert len(shop.connector.sent_ms("shop.customers")) == sent
