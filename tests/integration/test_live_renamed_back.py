"""A column of PostgreSQL has another name for a while: the lake follows it back, and `verify` says what the lake lacks."""

from __future__ import annotations

import pytest

from lakehold.verify.comparison import Comparison
from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def _columns(shop: Shop, table: str) -> list[str]:
    state = shop.lake.tables.table_state(f"shop.{table}")
    assert state is not None
    return [field.name for field in state.schema.fields]


def _verify_equal(shop: Shop, table: str) -> Comparison:
    wait_for(lambda: shop.lake.verify(f"shop.{table}").is_equal, f"{table} is equal")
    return shop.lake.verify(f"shop.{table}")


def test_columns_that_get_their_names_back_have_them_in_the_lake(shop: Shop) -> None:
    database = shop.database
    shop.upstream("orders", "items", "parts", rows=4)
    shop.lake.sql(f"BEGIN; {'; '.join(map(shop.creating, ('orders', 'items', 'parts')))}; COMMIT")
    shop.follow_until_equal("orders", "items", "parts")

    for table in ("orders", "items"):
        database.execute(f"ALTER TABLE {table} RENAME note TO remark", f"UPDATE {table} SET remark = 'r' WHERE id = 1")
        _verify_equal(shop, table)
        assert _columns(shop, table) == ["id", "n", "remark"]
    # The rename is rolled back. Of the other table, the column is dropped, and another one gets its first name.
    database.execute("ALTER TABLE orders RENAME remark TO note", "UPDATE orders SET note = 'back' WHERE id = 2")
    database.execute("ALTER TABLE items DROP remark", "ALTER TABLE items ADD note text DEFAULT 'other'")
    database.execute("UPDATE items SET note = 'another' WHERE id = 2")
    _verify_equal(shop, "orders")
    assert _columns(shop, "orders") == ["id", "n", "note"]
    _verify_equal(shop, "items")
    assert _columns(shop, "items") == ["id", "n", "remark", "note"]

    # Between two ingests a column has another name, under which a row changes, and then a record other than before.
    database.execute("ALTER TABLE parts RENAME note TO remark", "UPDATE parts SET remark = 'between' WHERE id = 3")
    database.execute("ALTER TABLE parts RENAME remark TO note", "ALTER TABLE parts ALTER note SET NOT NULL")
    shop.reopen()
    _verify_equal(shop, "parts")


def test_a_column_that_the_lake_does_not_have_yet_differs_only_if_rows_have_values_there(shop: Shop) -> None:
    shop.upstream("orders", rows=4)
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")

    shop.database.execute("ALTER TABLE orders ADD c int")
    assert shop.lake.verify("shop.orders").is_equal, "no row has a value there"
    shop.database.execute("ALTER TABLE orders ADD d int DEFAULT 5")
    found = shop.lake.verify("shop.orders")
    assert (found.different, {each.columns for each in found.differences}) == (4, {("d",)})
    assert found.reasons[0].startswith("column d is in the database and not in the lake's table")

    shop.database.execute("UPDATE orders SET n = 1 WHERE id = 1")
    assert shop.lake.verify("shop.orders").is_equal
    assert _columns(shop, "orders") == ["id", "n", "note", "c", "d"]
