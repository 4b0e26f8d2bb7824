"""Statements of Spark's that would change tables which lakehold writes: refused, however they name the table."""

from __future__ import annotations

import pytest

from lakehold.errors import DefinitionError, StatementError
from tests.unit.test_sql_run import with_shop


@pytest.mark.parametrize(
    ("sql", "verb"),
    [
        ("WITH x AS (SELECT 1 AS id) DELETE FROM shop.orders WHERE id IN (SELECT id FROM x)", "DELETE"),
        ("WITH x (id) AS (SELECT 1), y (SELECT 2) UPDATE shop.orders SET id = 2", "UPDATE"),
        (
            "WITH x AS (SELECT 1 AS id) MERGE INTO shop.orders o USING x ON o.id = x.id WHEN MATCHED THEN DELETE",
            "MERGE",
        ),
        ("WITH delete AS (SELECT 1 AS id) INSERT INTO shop.orders SELECT * FROM delete", "INSERT"),
        ("WITH x AS (SELECT 1 AS id) FROM x INSERT INTO shop.orders SELECT *", "INSERT"),
        ("INSERT INTO IDENTIFIER('shop.orders') VALUES (1)", "INSERT"),
        ("DELETE FROM identifier('lake.`shop`.Orders') WHERE id = 1", "DELETE"),
        ("UPDATE IDENTIFIER('shop.orders') SET id = 2", "UPDATE"),
        ("MERGE INTO IDENTIFIER('shop.orders') o USING b ON true WHEN MATCHED THEN DELETE", "MERGE"),
        ("TRUNCATE TABLE IDENTIFIER('shop.orders')", "TRUNCATE"),
        ("DROP TABLE IDENTIFIER('shop.orders')", "DROP"),
        ("FROM a.b INSERT INTO c.d SELECT * INSERT INTO shop.orders SELECT *", "INSERT"),
        ("DELETE FROM shop.orders.branch_main", "DELETE"),
        ("INSERT INTO lake.shop.orders.branch_audit VALUES (1)", "INSERT"),
    ],
)
def test_a_fed_table_is_not_changed_by_hand(sql: str, verb: str) -> None:
    lake, _ = with_shop()
    with pytest.raises(DefinitionError, match=rf"{verb} by hand would make it differ from topic 'orders'") as refused:
        lake.run(sql)
    assert refused.value.code == "table-fed"


def test_a_fed_table_is_not_renamed() -> None:
    lake, _ = with_shop()
    with pytest.raises(DefinitionError, match="its source would not find it") as refused:
        lake.run("ALTER TABLE shop.orders RENAME TO shop.orders_old")
    assert refused.value.code == "table-fed"


@pytest.mark.parametrize("name", ["'shop.' || 'orders'", ":name", "'shop'", "'shop.orders' AS x", "''", "'a b'"])
def test_a_computed_name_of_a_changed_table_is_refused(name: str) -> None:
    lake, _ = with_shop()
    dotted = ".orders" if name == "'shop'" else ""
    with pytest.raises(StatementError):
        lake.run(f"DELETE FROM IDENTIFIER({name}){dotted}")
