"""Arguments of expectations: parameters, times, fields of structures, shares of rows and conditions."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.quality import Outcome
from tests.conftest import LakeFactory
from tests.doc_pages import page, section

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(make_lake: LakeFactory, tmp_path: Path) -> Lake:
    lake = make_lake(foreign_lag_ms=50, expectations=str(tmp_path))
    lake.sql("CREATE NAMESPACE s")
    return lake


def expectation(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"type": name, "kwargs": kwargs}


def outcomes(lake: Lake, *expectations: dict[str, Any]) -> tuple[Outcome, ...]:
    """Check `s.t` with a suite of these expectations."""
    assert lake.settings.expectations is not None
    path = lake.settings.expectations / "s.t.json"
    path.write_text(json.dumps({"name": "s.t", "expectations": expectations}))
    return lake.check("s.t").outcomes


@pytest.mark.parametrize(
    ("wrong", "code", "detail", "hint"),
    [
        (
            expectation("expect_column_values_to_be_between", column="id", max_value={"$PARAMETER": "today"}),
            "suite-invalid",
            "No value found for $PARAMETER today",
            "The parameters are future and future_ms",
        ),
        (
            expectation("expect_column_max_to_be_between", column="id", max_value={"$PARAMETER": "future - days(1)"}),
            "suite-invalid",
            "Error while evaluating suite parameter expression",
            "The parameters are future and future_ms",
        ),
        (
            expectation("expect_table_row_count_to_be_between", max_value={"$PARAMETER": "future"}),
            "check-failed",
            "Could not parse",
            "Correct the expectation",
        ),
        (
            expectation("expect_column_values_to_be_in_set", column="gone"),
            "suite-invalid",
            "value_set",
            "Correct the file",
        ),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_its_expectation(
    lake: Lake, wrong: dict[str, Any], code: str, detail: str, hint: str
) -> None:
    lake.sql("CREATE TABLE s.t (id BIGINT) USING iceberg; INSERT INTO s.t VALUES (1)")
    good = expectation("expect_column_values_to_not_be_null", column="id")
    with pytest.raises(LakeholdError) as refused:
        outcomes(lake, good, wrong)
    assert refused.value.code == code
    assert f'Expectation 2, "{wrong["type"]}"' in refused.value.detail
    assert detail in refused.value.detail
    assert hint in refused.value.hint


@pytest.mark.parametrize("time_zone", ["Asia/Tokyo", "America/New_York"], indirect=True)
@pytest.mark.usefixtures("time_zone")
def test_the_newest_row_is_at_most_a_day_old(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE s.t USING iceberg AS SELECT current_timestamp() - INTERVAL 12 HOURS AS at, "
        "to_timestamp_ntz(current_timestamp() - INTERVAL 12 HOURS) AS local, "
        "to_date(current_timestamp() - INTERVAL 48 HOURS) AS day"
    )

    def newest(column: str, age: str) -> dict[str, Any]:
        least = {"$PARAMETER": f"future - timedelta({age})"}
        return expectation("expect_column_max_to_be_between", column=column, min_value=least)

    found = outcomes(
        lake,
        newest("at", "days=1"),
        newest("at", "hours=11"),
        newest("local", "days=1"),
        newest("local", "hours=11"),
        newest("day", "days=4"),
        newest("day", "days=1"),
    )
    assert [outcome.success for outcome in found] == [True, False] * 3


def test_the_page_shows_how_to_ask_for_a_fresh_table(lake: Lake) -> None:
    shown = section(page("quality.md"), "### Freshness").partition("```json")[2].partition("```")[0]
    found = []
    for hours in (12, 36):
        lake.sql(
            f"CREATE OR REPLACE TABLE s.t USING iceberg AS SELECT current_timestamp() - INTERVAL {hours} HOURS AS changed_at"
        )
        found += [outcome.success for outcome in outcomes(lake, json.loads(shown))]
    assert found == [True, False]


@pytest.mark.parametrize("time_zone", ["Europe/Berlin"], indirect=True)
@pytest.mark.usefixtures("time_zone")
def test_times_are_compared_and_shown_in_utc(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE s.t (id BIGINT, at TIMESTAMP) USING iceberg TBLPROPERTIES ('lakehold.key' = 'at');"
        "INSERT INTO s.t VALUES (1, TIMESTAMP '2026-01-01 23:30:00')"
    )
    late, early = "2026-01-01T23:45:00", "2026-01-01T23:15:00"
    found = outcomes(
        lake,
        *(
            expectation(name, column="at", max_value=bound)
            for name in ("expect_column_values_to_be_between", "expect_column_max_to_be_between")
            for bound in (late, early)
        ),
        expectation("unexpected_rows_expectation", unexpected_rows_query="SELECT * FROM {batch}"),
    )
    assert [outcome.success for outcome in found] == [True, False, True, False, False]
    at = dt.datetime(2026, 1, 1, 23, 30)  # noqa: DTZ001 - rows show times in UTC without a zone
    assert (found[1].examples, found[1].keys) == ((at,), ({"at": at},))
    assert found[4].examples == ({"id": 1, "at": at},)


def test_fields_of_structures_are_columns_of_an_expectation(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE s.t (id BIGINT, `a.b` INT, address STRUCT<city: STRING>) USING iceberg;"
        "INSERT INTO s.t VALUES (1, 1, named_struct('city', 'Ulm')), (2, 2, named_struct('city', NULL))"
    )
    found = outcomes(
        lake,
        *(
            expectation("expect_column_values_to_not_be_null", column=name)
            for name in ("address.city", "address.zip", "id.city", "a.b")
        ),
    )
    assert [(outcome.success, outcome.found) for outcome in found] == [
        (False, "1 of 2 rows"),
        (False, "no column address.zip"),
        (False, "no column id.city"),
        (True, "0 of 2 rows"),
    ]


def test_an_aggregate_of_an_empty_table_is_met_and_one_of_nulls_is_not(lake: Lake) -> None:
    lake.sql("CREATE TABLE s.t (id BIGINT, total DOUBLE) USING iceberg")
    suite = [
        expectation(f"expect_column_{of}_to_be_between", column="total", min_value=1)
        for of in ("min", "max", "mean", "sum", "median", "stdev")
    ]
    assert [(outcome.success, outcome.found) for outcome in outcomes(lake, *suite)] == [(True, "no value")] * 6
    lake.sql("INSERT INTO s.t VALUES (1, NULL)")
    assert not any(outcome.success for outcome in outcomes(lake, *suite))


def test_an_expectation_says_in_which_rows_it_is_not_met_and_shows_some(lake: Lake) -> None:
    lake.sql("CREATE TABLE s.t (id BIGINT, v INT) USING iceberg; INSERT INTO s.t VALUES (1, 1), (2, NULL), (3, NULL)")
    found = outcomes(
        lake,
        expectation("expect_column_values_to_not_be_null", column="v", mostly=0.95),
        expectation(
            "expect_column_values_to_not_be_null", column="v", row_condition="id > 1", condition_parser="spark"
        ),
        expectation("unexpected_rows_expectation", unexpected_rows_query="SELECT id FROM {batch} WHERE v IS NULL"),
    )
    assert [(outcome.expected, outcome.found) for outcome in found] == [
        ("no null, in at least 95% of the rows", "2 of 3 rows"),
        ("no null where id > 1", "2 of 2 rows"),
        ("no rows of SELECT id FROM {batch} WHERE v IS NULL", "2 rows"),
    ]
    assert found[2].examples == ({"id": 2}, {"id": 3})


def test_a_check_prints_nothing(lake: Lake, capfd: pytest.CaptureFixture[str]) -> None:
    lake.sql("CREATE TABLE s.t (id BIGINT) USING iceberg; INSERT INTO s.t VALUES (1)")
    (found,) = outcomes(lake, expectation("unexpected_rows_expectation", unexpected_rows_query="SELECT id FROM s.t"))
    assert not found.success
    assert capfd.readouterr().out == ""
