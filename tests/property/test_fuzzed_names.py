"""A round of hostile names, and every keyword as a name; `make fuzz` tries more names."""

from __future__ import annotations

from random import Random

import pytest

from lakehold.object_names import full_name_text
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.render import create_statement
from lakehold.sql.statements import CreateMaterializedView, CreateTable
from tests.fuzz import names


def test_a_hostile_name_is_refused_or_survives_the_statement_that_shows_it() -> None:
    rounds = names.tried(Random(1))
    for tried in (next(rounds) for _ in range(3)):
        assert tried.faults == ()
        assert tried.counts["accepted"] > tried.inputs / 2
        assert tried.counts["refused"] > tried.inputs / 20


@pytest.mark.parametrize("quote", ["", "`"])
def test_every_keyword_is_a_name_of_a_column_and_a_field(quote: str) -> None:
    for word in names.KEYWORDS:
        field = f"`{word}`"  # Spark reads `not` only so.
        columns = f"{quote}{word}{quote} INT, b STRUCT<{field}: INT>"
        sql = f"CREATE TABLE shop.t ({columns}) FROM SOURCE s (TOPIC 't') ENVELOPE UPSERT"
        (created,) = parse_script(sql)
        assert isinstance(created.statement, CreateTable), sql
        assert [column.name for column in created.statement.table.columns] == [word, "b"]
        assert parse_script(create_statement(created.statement.table))[0].statement == created.statement


def test_every_keyword_is_a_name_of_a_table_that_a_view_reads() -> None:
    for word in names.KEYWORDS:
        sql = f"CREATE MATERIALIZED VIEW a.b KEY (id) AS SELECT id FROM `{word}`.`{word}`"
        (created,) = parse_script(sql)
        assert isinstance(created.statement, CreateMaterializedView)
        assert created.statement.view.query == f"SELECT id FROM {full_name_text(f'{word}.{word}')}"
        assert parse_script(create_statement(created.statement.view))[0].statement == created.statement
