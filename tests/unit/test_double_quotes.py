"""Names in double quotes in queries of views and subscriptions: Spark reads them as text, and reports nothing."""

from __future__ import annotations

import pytest

from lakehold.model.lake_definitions import Definitions
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.plan.statement_effects import Notice
from lakehold.sql.plan.statement_plan import plan


def notices(sql: str) -> list[str]:
    (parsed,) = parse_script(sql)
    return [effect.text for effect in plan(parsed, Definitions()).effects if isinstance(effect, Notice)]


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ('SELECT "id", total FROM shop.orders WHERE "status" = \'paid\'', ["id", "status"]),
        ("SELECT id FROM shop.orders WHERE total > 1 AND \"status\" NOT IN ('paid')", ["status"]),
        ('SELECT id FROM shop.orders o JOIN shop.users u ON "user" = u.id', ["user"]),
        ('SELECT status, count(*) FROM shop.orders GROUP BY status, "day"', ["day"]),
        ('SELECT id FROM (SELECT DISTINCT "id" FROM shop.orders)', ["id"]),
    ],
)
def test_a_text_in_the_place_of_a_column_is_named_in_a_notice(query: str, texts: list[str]) -> None:
    written, names = ", ".join(f'"{text}"' for text in texts), ", ".join(f"`{text}`" for text in texts)
    expected = [f"{written}: in a query double quotes are text; for a column write {names}"]
    assert notices(f'CREATE MATERIALIZED VIEW bi.v KEY ("id") AS {query}') == expected
    assert notices(f'CREATE SUBSCRIPTION s INTO "bi"."out" AS SUBSCRIBE ({query})') == expected


@pytest.mark.parametrize(
    "query",
    [
        'SELECT id, "web" AS channel FROM shop.orders WHERE status = "paid" OR status IN ("new", "sent")',
        'SELECT concat("a", "b", status) AS x, CASE WHEN id > 1 THEN "a" ELSE "b" END AS y FROM shop.orders',
        "SELECT `id` FROM shop.orders WHERE `status` = 'paid'",
    ],
)
def test_texts_in_other_places_are_no_names(query: str) -> None:
    assert notices(f'CREATE MATERIALIZED VIEW bi.v KEY ("id", "x") AS {query}') == []
    order = 'WITHIN TIMESTAMP ORDER BY "id"'
    assert notices(f'CREATE SUBSCRIPTION s INTO "bi"."out" AS SUBSCRIBE ({query}) {order}') == []
