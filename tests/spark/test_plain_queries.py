"""Queries that this process answers without Spark give the same rows, types and names as Spark."""

from __future__ import annotations

import random

import pytest

from lakehold.lake import Lake
from lakehold.subscribe.row_by_row_changes import RowByRow
from tests.conftest import LakeFactory
from tests.histories import exact

pytestmark = pytest.mark.spark

CONDITIONS = 120

INTEGERS = (0, 1, -1, 7, 2**31 - 1, -(2**31), 2**31, 2**63 - 1)
TEXTS = ("", " ", "a", "A", "a ", "b", "ab", "ä", "z", "ﬁ", "😀", "1", "NULL", "per%cent_")
BOOLEANS = ("TRUE", "FALSE")


@pytest.fixture
def facts(make_lake: LakeFactory) -> Lake:
    """Return a lake with a table of values at the edges of their types, and nulls."""
    lake = make_lake(foreign_lag_ms=0)
    lake.sql("""
        CREATE NAMESPACE shop;
        CREATE TABLE shop.facts (
          id BIGINT NOT NULL, i INT, n BIGINT, v STRING, b BOOLEAN, f DOUBLE, `Mixed Name` STRING,
          at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, m DECIMAL(10, 2), tags ARRAY<STRING>, s STRUCT<a: INT, b: STRING>
        ) USING iceberg
    """)
    rows = []
    for id_ in range(60):
        chosen = random.Random(id_)
        i = chosen.choice([f"CAST({n} AS INT)" for n in INTEGERS if abs(n) < 2**31] + ["NULL"])
        n = chosen.choice([str(n) for n in INTEGERS] + ["NULL"])
        v = chosen.choice([f"'{text}'" for text in TEXTS] + ["NULL"])
        b = chosen.choice([*BOOLEANS, "NULL"])
        rows.append(
            f"({id_}, {i}, {n}, {v}, {b}, 1.5D, {v}, TIMESTAMP '2026-11-21 12:00:00.123456 UTC',"
            f" TIMESTAMP_NTZ '2026-11-21 12:00:00', DATE '2026-11-21', 1.25, array({v}), named_struct('a', {i}, 'b', {v}))"
        )
    lake.sql(f"INSERT INTO shop.facts VALUES {', '.join(rows)}")
    return lake


def condition(chosen: random.Random, depth: int = 2) -> str:
    """Generate the text of a condition that needs no engine."""
    if depth and chosen.random() < 0.6:
        parts = [condition(chosen, depth - 1) for _ in range(chosen.choice([1, 2, 3]))]
        joined = chosen.choice([" AND ", " OR "]).join(parts)
        return chosen.choice(["({})", "NOT ({})", "{}"]).format(joined)
    column, constants = chosen.choice(
        [
            ("i", [str(n) for n in INTEGERS]),
            ("n", [str(n) for n in INTEGERS]),
            ("v", [f"'{text}'" for text in TEXTS]),
            ("`Mixed Name`", [f"'{text}'" for text in TEXTS]),
            ("b", list(BOOLEANS)),
        ]
    )
    one, other, *_ = chosen.choices(constants, k=2)
    return chosen.choice(
        [
            f"{column} {chosen.choice(['=', '==', '!=', '<>', '<', '<=', '>', '>='])} {one}",
            f"{one} {chosen.choice(['=', '!=', '<', '<=', '>', '>='])} {column}",
            f"{column} BETWEEN {one} AND {other}",
            f"{column} NOT BETWEEN {one} AND {other}",
            f"{column} IN ({one}, {other})",
            f"{column} NOT IN ({one})",
            f"{column} IS NULL",
            f"{column} IS NOT NULL",
            "b",
            "NOT b",
        ]
    )


def is_answered_here(lake: Lake, query: str) -> bool:
    relation = lake.open_subscription(f"SUBSCRIBE ({query})").subscription.relation
    return isinstance(relation, RowByRow) and relation.arrow_query is not None


def test_conditions_select_the_same_rows_as_spark(facts: Lake) -> None:
    found = [condition(random.Random(seed)) for seed in range(CONDITIONS)]
    shown = ", ".join(f"{text} AS c{number}" for number, text in enumerate(found))
    by_spark = facts.sql(f"SELECT id, {shown} FROM shop.facts ORDER BY id").rows
    for number, text in enumerate(found):
        query = f"SELECT id FROM shop.facts WHERE {text}"
        if "''" in text:  # an empty text may be the end of an escape
            continue
        assert is_answered_here(facts, query), query
        held = [id_ for _, _, id_ in facts.sql(f"SUBSCRIBE ({query})").rows]
        assert held == [row[0] for row in by_spark if row[number + 1]], query


def test_columns_have_sparks_names_types_and_values(facts: Lake) -> None:
    query = "SELECT *, at AS `An Alias`, id, i FROM shop.facts WHERE id >= 0"
    assert is_answered_here(facts, query)
    subscribed = facts.sql(f"SUBSCRIBE ({query}) WITHIN TIMESTAMP ORDER BY 2")
    by_spark = facts.sql(f"{query} ORDER BY 1")
    assert subscribed.columns[2:] == by_spark.columns
    assert [exact(row[2:]) for row in subscribed.rows] == [exact(row) for row in by_spark.rows]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT ID FROM shop.facts", "Spark shows it as it is written"),
        ("SELECT missing FROM shop.facts", "Spark says that it is missing"),
        ("SELECT id FROM shop.facts WHERE n = '1'", "Spark casts one of them"),
        ("SELECT id FROM shop.facts WHERE v = 1", "Spark casts one of them"),
        ("SELECT id FROM shop.facts WHERE f = 1", "NaN is equal to itself in Spark"),
        ("SELECT id FROM shop.facts WHERE m > 1", "Spark widens decimals"),
        ("SELECT id FROM shop.facts WHERE day > '2026-01-01'", "Spark reads dates"),
        ("SELECT id FROM shop.facts WHERE n < 99999999999999999999", "Spark takes it for a decimal"),
        ("SELECT id FROM shop.facts WHERE i IN (1, 'a')", "Spark casts one of them"),
    ],
)
def test_conditions_with_special_rules_are_left_to_spark(facts: Lake, query: str, reason: str) -> None:
    assert reason
    if "missing" in query:
        with pytest.raises(Exception, match="missing"):
            is_answered_here(facts, query)
    else:
        assert not is_answered_here(facts, query)
