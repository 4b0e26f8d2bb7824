"""Statements of Spark's that would change tables which lakehold writes: refused, however they name the table."""

from __future__ import annotations

import pytest

from lakehold.errors import DefinitionError, StatementError
from lakehold.model.lake_definitions import Definitions
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.plan.statement_effects import DropHolds, RunOnSpark
from lakehold.sql.plan.statement_plan import plan
from lakehold.state.holds import Check, HeldTable, Hold
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
        ("FROM a.b INSERT INTO c.d SELECT * INSERT INTO shop.orders SELECT *", "INSERT"),
        ("DELETE FROM shop.orders.branch_main", "DELETE"),
        ("INSERT INTO lake.shop.orders.branch_audit VALUES (1)", "INSERT"),
        ("EXECUTE IMMEDIATE 'DELETE FROM shop.orders'", "DELETE"),
        ("EXECUTE IMMEDIATE 'UPDATE shop.orders SET id = ?' USING 1", "UPDATE"),
        ("EXECUTE IMMEDIATE \"EXECUTE IMMEDIATE 'TRUNCATE TABLE shop.orders'\"", "TRUNCATE"),
    ],
)
def test_a_fed_table_is_not_changed_by_hand(sql: str, verb: str) -> None:
    lake, _ = with_shop()
    with pytest.raises(DefinitionError, match=rf"{verb} by hand would make it differ from topic 'orders'") as refused:
        lake.run(sql)
    assert refused.value.code == "table-fed"


@pytest.mark.parametrize("name", ["`Orders`", "`2024_orders`", "`1d`", "`to`", "`envelope`", "`Bestellungen_für`"])
@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM shop.{}",
        "INSERT INTO lake.shop.{} VALUES (1)",
        "MERGE INTO shop.{} o USING b ON true WHEN MATCHED THEN DELETE",
        "CREATE OR REPLACE TABLE shop.{} (id INT)",
        "ALTER TABLE shop.{} RENAME TO shop.other",
        "TRUNCATE TABLE IDENTIFIER('shop.{}')",
    ],
)
def test_a_fed_table_is_found_by_every_name_that_spark_reads(sql: str, name: str) -> None:
    lake, _ = with_shop()
    lake.run(f"CREATE TABLE shop.{name} FROM SOURCE shop (TOPIC 'orders') ENVELOPE UPSERT")
    for written in (name, name.strip("`"), name.strip("`").upper()):
        with pytest.raises(DefinitionError, match="is fed by source") as refused:
            lake.run(sql.format(written))
        assert refused.value.code == "table-fed"


@pytest.mark.parametrize("end", ["PURGE", ", shop.customers", ""])
def test_the_error_of_a_drop_that_spark_would_make_says_how_the_fed_table_is_dropped(end: str) -> None:
    lake, tables = with_shop()
    lake.run("CREATE TABLE shop.`Items` FROM SOURCE shop (TOPIC 'orders') ENVELOPE UPSERT")
    with pytest.raises(DefinitionError, match="Spark's DROP TABLE would leave its definition") as refused:
        lake.run(f"DROP TABLE shop.Items {end}")
    assert refused.value.hint.startswith("DROP TABLE shop.`Items` removes the table and its data")
    lake.run("DROP TABLE shop.`Items` RESTRICT")
    assert tables.done == ["drop shop.Items"]


def test_restrict_is_the_default_of_every_drop() -> None:
    lake, _ = with_shop()
    for what in ("CONNECTION kafka", "SOURCE shop"):
        with pytest.raises(DefinitionError, match="is still used"):
            lake.run(f"DROP {what} RESTRICT")
    assert lake.run("EXPLAIN DROP TABLE bi.other RESTRICT").rows == [("run on Spark: DROP TABLE bi.other",)]


@pytest.mark.parametrize("name", ["DailyTotals", "`DailyTotals`", "dailytotals"])
@pytest.mark.parametrize(
    "sql", ["DROP TABLE sales.{}", "DROP TABLE sales.{} PURGE", "ALTER TABLE sales.{} RENAME TO s.t"]
)
def test_a_held_table_of_another_writer_is_not_dropped_or_renamed(sql: str, name: str) -> None:
    hold = Hold("1", "public", "daily", None, (HeldTable("u", "sales.DailyTotals"),), 0, Check.OFF, "…", 1)
    (parsed,) = parse_script(sql.format(name))
    with pytest.raises(DefinitionError, match=r'"sales\.DailyTotals" is held'):
        plan(parsed, Definitions(), (hold,))
    (parsed,) = parse_script("DROP TABLE sales.DailyTotals CASCADE")
    assert DropHolds((hold,)) in plan(parsed, Definitions(), (hold,)).effects


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE mz_catalog.mz_holds",
        "DROP TABLE IF EXISTS lake.mz_catalog.mz_holds PURGE",
        "DELETE FROM mz_catalog.mz_objects",
        "TRUNCATE TABLE mz_catalog.mz_source_errors",
        "INSERT INTO MZ_CATALOG.mz_batches VALUES (1)",
        "ALTER TABLE mz_catalog.mz_objects DROP COLUMN name",
        "ALTER TABLE mz_catalog.mz_objects RENAME TO x.y",
        "CREATE TABLE mz_catalog.x (id INT)",
        "EXECUTE IMMEDIATE 'DELETE FROM mz_catalog.mz_objects'",
    ],
)
def test_tables_of_the_lake_itself_are_not_changed_by_hand(sql: str) -> None:
    lake, _ = with_shop()
    with pytest.raises(DefinitionError, match="is the lake's own") as refused:
        lake.run(sql)
    assert refused.value.code == "namespace-reserved"


@pytest.mark.parametrize(
    "sql", ["DROP TABLE sys.events", "ALTER TABLE sys.events RENAME TO a.b", "DELETE FROM other.mz_catalog.t"]
)
def test_tables_that_others_have_in_reserved_namespaces_are_theirs(sql: str) -> None:
    (parsed,) = parse_script(sql)
    assert [type(effect) for effect in plan(parsed, Definitions()).effects] == [RunOnSpark]


@pytest.mark.parametrize("text", ["'DELETE FROM ' || 'shop.orders'", "s", "'DELETE FROM ' 'shop.orders'", "upper('x')"])
def test_a_computed_statement_is_refused(text: str) -> None:
    lake, _ = with_shop()
    with pytest.raises(StatementError, match="expected a statement in single quotes"):
        lake.run(f"EXECUTE IMMEDIATE {text}")


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
