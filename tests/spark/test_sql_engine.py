"""Statements that Spark runs: rows and column names are Spark's, and its errors become readable ones."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from lakehold.errors import LakeholdError, StatementError
from lakehold.sql.plan.statement_effects import RunOnSpark
from lakehold.sql.result import Result
from lakehold.sql.run.spark_statements import run_on_spark, suggesting
from lakehold.sql.text.dialect import MAX_BRACKETS

pytestmark = pytest.mark.spark


def run(spark: SparkSession, sql: str) -> Result:
    return run_on_spark(spark, RunOnSpark(sql, 0, len(sql)))


def test_rows_are_tuples_under_sparks_column_names(spark: SparkSession) -> None:
    result = run(spark, "SELECT 1 + 1, 'it''s' AS `A b`, CAST(1.5 AS DECIMAL(3, 2)) x, 2 AS x")
    assert result.columns == ("(1 + 1)", "A b", "x", "x")
    assert result.rows == [(2, "it's", Decimal("1.50"), 2)]


def test_a_command_returns_nothing(spark: SparkSession) -> None:
    assert run(spark, "CREATE OR REPLACE TEMPORARY VIEW one AS SELECT 1 AS a") == Result()


def test_a_missing_column_is_pointed_at_in_the_whole_script(spark: SparkSession) -> None:
    script = "SHOW TABLES;\n  SELECT 1,\n    missing FROM VALUES (1) AS t(a)"
    start = script.index("SELECT")
    with pytest.raises(StatementError) as refused:
        run_on_spark(spark, RunOnSpark(script, start, len(script)))
    error = refused.value
    assert error.code.startswith("UNRESOLVED_COLUMN")
    assert error.place is not None
    assert error.place.line == 3
    assert error.place.excerpt() == "    missing FROM VALUES (1) AS t(a)\n    ^^^^^^^"


def test_a_missing_column_is_pointed_at_on_the_first_line_of_a_statement(spark: SparkSession) -> None:
    script = "SHOW TABLES;  SELECT missing"
    with pytest.raises(StatementError) as refused:
        run_on_spark(spark, RunOnSpark(script, script.index("SELECT"), len(script)))
    assert refused.value.place.excerpt() == "SHOW TABLES;  SELECT missing\n                     ^^^^^^^"


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELEC 1", "PARSE_SYNTAX_ERROR"),
        ("SELECT * FROM nowhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT CAST('x' AS INT)", "CAST_INVALID_INPUT"),
        ("SELECT 1 / 0", "DIVIDE_BY_ZERO"),
        ("SELECT raise_error('stop')", "USER_RAISED_EXCEPTION"),
        ("SELECT assert_true(id < 1) FROM range(3)", "USER_RAISED_EXCEPTION"),
        ("SELECT CAST(id - 10 AS STRING)::DATE FROM range(3)", "CAST_INVALID_INPUT"),
    ],
)
def test_errors_carry_sparks_condition_and_no_stack_trace(
    spark: SparkSession, sql: str, code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LakeholdError) as refused:
        run(spark, sql)
    error = refused.value
    assert error.code == code
    assert "\n" not in error.message
    assert "org.apache" not in str(error)
    assert "SQLSTATE" not in str(error)
    assert "org.apache.spark.sql.catalyst" not in capfd.readouterr().err


def test_nested_brackets_run_and_too_many_are_a_clear_error(spark: SparkSession) -> None:
    refused: dict[int, StatementError] = {}
    for depth in (100, MAX_BRACKETS, 400):
        try:
            assert run(spark, f"SELECT {'(' * depth}1{')' * depth}").rows == [(1,)]
        except StatementError as error:
            refused[depth] = error
    assert 100 not in refused, "the limit above 100 depends on Java's stack"
    errors = {(error.message, error.code, error.hint) for error in refused.values()}
    assert errors <= {("the statement is nested too deeply", "syntax", "use fewer brackets inside each other")}


def test_dropping_a_missing_table_is_an_error_that_says_what_to_do(spark: SparkSession) -> None:
    with pytest.raises(LakeholdError) as refused:
        run(spark, "DROP TABLE nowhere")
    assert refused.value.detail
    assert "SHOW TABLES" in refused.value.hint
    assert "IF EXISTS" in refused.value.hint


def test_a_missing_table_is_answered_with_one_like_it(spark: SparkSession) -> None:
    with pytest.raises(LakeholdError) as refused, suggesting(lambda: ["shop.items", "shop.orders"]):
        run(spark, "SELECT * FROM shop.ordrs")
    assert refused.value.hint == 'Did you mean "shop.orders"?'
