"""Statements after USE: they mean the table or view of the session's namespace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakehold.errors import DefinitionError
from lakehold.sql.run.script_run import Runner
from tests.unit.test_sql_run import with_shop


class Session:
    """A session of Spark after `USE shop`."""

    def sql(self, _: str) -> Session:
        return self

    def collect(self) -> list[tuple[str, str]]:
        return [("lake", "shop")]


def using_shop() -> Runner:
    session: Any = Session()
    lake, _ = with_shop()
    return replace(lake, spark=lambda: session)


def test_the_retained_history_of_a_table_is_set_by_its_name_alone() -> None:
    lake = using_shop()
    lake.run("ALTER TABLE orders SET (RETAIN HISTORY = '2 days')")
    assert lake.store.definitions().table("shop.orders").definition.options == {"retain_history": 2 * 86_400_000}
    lake.run("ALTER TABLE orders RESET (RETAIN HISTORY)")
    assert lake.store.definitions().table("shop.orders").definition.options == {}


def test_a_table_is_shown_by_its_name_alone() -> None:
    lake = using_shop()
    assert lake.run("SHOW CREATE TABLE orders").rows == lake.run("SHOW CREATE TABLE shop.orders").rows


@pytest.mark.parametrize(
    "sql",
    ["ALTER MATERIALIZED VIEW v SET (MAX LAG = '1h')", "SHOW CREATE MATERIALIZED VIEW v", "DROP MATERIALIZED VIEW v"],
)
def test_a_view_is_found_by_its_name_alone(sql: str) -> None:
    with pytest.raises(DefinitionError, match=r'"shop\.v" does not exist'):
        using_shop().run(sql)


@pytest.mark.parametrize("name", ["orders", "shop.orders"])
def test_explain_plans_the_statement_that_would_run(name: str) -> None:
    assert using_shop().run(f"EXPLAIN DROP TABLE {name}").rows == [
        ("forget table shop.orders",),
        ("drop the data of table shop.orders",),
    ]


def test_explain_shows_the_drop_of_a_table_that_spark_drops() -> None:
    lake, _ = with_shop()
    assert lake.run("EXPLAIN DROP TABLE bi.other CASCADE").rows == [("run on Spark: DROP TABLE bi.other",)]


def test_explain_of_a_definition_that_exists_has_no_step() -> None:
    lake, _ = with_shop()
    again = "CREATE SOURCE IF NOT EXISTS f FROM FILES '/x' FORMAT JSON"
    lake.run(again)
    assert lake.run(f"EXPLAIN {again}").rows == []
