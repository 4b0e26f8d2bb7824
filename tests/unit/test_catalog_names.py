"""Names of tables may begin with the name of the lake's catalog, which is a setting, and with no other one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakehold.errors import DefinitionError, StatementError
from lakehold.lake import connect
from lakehold.sql.parse.statement import parse_endless, parse_script
from lakehold.sql.statements import CreateSubscription, Drop, RetainHistory, SelectAsOf, ShowCreate, SubscribeTo
from lakehold.subscribe.statement import Query

STATEMENTS = [
    "CREATE TABLE {}shop.t FROM SOURCE s (TOPIC 't') ENVELOPE UPSERT",
    "DROP TABLE {}shop.t",
    "SHOW CREATE TABLE {}shop.t",
    "ALTER TABLE {}shop.t SET (RETAIN HISTORY = '1 day')",
    "CREATE HOLD h ON {}shop.t, {}shop.u",
    "GRANT SELECT ON {}shop.t TO bi",
    "GRANT CREATE ON SCHEMA {}shop TO bi",
    "SUBSCRIBE {}shop.t",
    "INSERT INTO {}shop.t VALUES (1)",
    "DELETE FROM {}shop.t",
]
QUERIES = [
    "SELECT * FROM {}shop.t JOIN {}shop.u USING (id) AS OF 5",
    "SUBSCRIBE (SELECT id FROM {}shop.t JOIN {}shop.u USING (id))",
]


def full_names(text: str, catalog: str) -> list[str]:
    (parsed,) = parse_script(text, catalog)
    assert isinstance(parsed.statement, SelectAsOf | SubscribeTo)
    query = parsed.statement.query if isinstance(parsed.statement, SelectAsOf) else parsed.statement.subscribe.relation
    assert isinstance(query, Query)
    return [table.full_name for table in query.tables]


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_with_the_name_of_the_catalog_is_the_one_without(text: str) -> None:
    names = text.count("{}")
    (expected,) = parse_script(text.format(*[""] * names), "prod")
    (found,) = parse_script(text.format(*["PROD."] * names), "prod")
    statement = found.statement
    if isinstance(statement, Drop | ShowCreate | RetainHistory):
        assert statement.in_lake, "it stays the lake's after USE of another catalog"
        statement = replace(statement, in_lake=False)
    assert statement == expected.statement


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_with_the_name_of_the_catalog_reads_the_tables_of_the_lake(text: str) -> None:
    assert full_names(text.format("prod.", "`prod`."), "prod") == ["shop.t", "shop.u"]
    assert full_names(text.format("lake.", ""), "prod") == ["lake.shop.t", "shop.u"]


@pytest.mark.parametrize(
    "text",
    [
        "SUBSCRIBE {}shop.t ENVELOPE UPSERT (KEY (id))",
        "SUBSCRIBE TO {}shop.`T` WITH (SNAPSHOT = false)",
        "SUBSCRIBE (SELECT prod.a.b, 'prod.shop.t', u.id FROM {}shop.t /* prod.shop.t */ AS prod JOIN {}shop.u USING (id))",
        "SUBSCRIBE (WITH c AS (SELECT * FROM {}shop.t) SELECT id FROM c WHERE id IN (SELECT id FROM {}prod.u)) AS OF 5",
        "SUBSCRIBE prod.t",
        "SUBSCRIBE (SELECT {}shop.t.id, {}shop.t.prod.x FROM {}shop.t WHERE {}shop.t.`Id` > 1) ENVELOPE UPSERT (KEY (id))",
        "SUBSCRIBE (SELECT {}shop.t.id, prod.id FROM shop.t, {}shop.prod AS u, other.shop.v WHERE other.shop.v.id = t.id)",
        "SUBSCRIBE ((SELECT {}shop.t.id FROM {}shop.t) UNION ALL (SELECT u.id FROM {}shop.u AS u))",
    ],
)
def test_a_statement_that_is_kept_does_not_have_the_name_of_the_catalog(text: str) -> None:
    names = text.count("{}")
    written, kept = text.format(*(["PROD .", "`prod`."] * names)[:names]), text.format(*[""] * names)
    (parsed,) = parse_script(f"CREATE SUBSCRIPTION s AS {written}", "prod")
    assert isinstance(parsed.statement, CreateSubscription)
    assert parsed.statement.subscription.subscribe == kept
    assert parse_endless(written, "prod").text == kept
    assert parse_endless(kept, "lake").tables == parsed.statement.subscription.tables


def test_another_catalog_is_refused_where_a_table_is_created() -> None:
    text = "CREATE TABLE lake.shop.t FROM SOURCE s (TOPIC 't') ENVELOPE UPSERT"
    with pytest.raises(StatementError, match=r"expected namespace\.table, found lake\.shop\.t"):
        parse_script(text, "prod")


def test_a_lake_with_another_name_of_its_catalog_is_read_and_its_fed_tables_are_guarded(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64())])
    with connect(str(tmp_path / "lake"), catalog_name="prod", foreign_lag_ms=0) as lake:
        lake.catalog.create_namespace("shop")
        lake.catalog.create_table("shop.t", schema).append(pa.table({"id": [1]}, schema))
        lake.sql("CREATE SUBSCRIPTION changes AS SUBSCRIBE prod.shop.t")
        assert lake.subscriptions.parse("SUBSCRIBE prod.shop.t").tables == ("shop.t",)
        assert lake.open_subscription("SUBSCRIBE prod.shop.t").columns[-1] == "id"
        lake.sql(f"CREATE SOURCE feed FROM FILES '{tmp_path}' FORMAT JSON")
        lake.sql("CREATE TABLE prod.shop.fed (id BIGINT) FROM SOURCE feed (TOPIC 't') ENVELOPE NONE")
        with pytest.raises(DefinitionError, match=r'"shop\.fed"'):
            lake.sql("DELETE FROM prod.shop.fed")
