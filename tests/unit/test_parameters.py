"""Parameters of prepared statements: the text that runs for the values of a row."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lakehold.errors import LakeholdError
from lakehold.serve.parameters import bound, with_nulls


def run(text: str, *values: object) -> str:
    """Bind a row of values; returns the words of the text that runs."""
    row = pa.table({str(place): [value] for place, value in enumerate(values)})
    return " ".join(bound(text, row.to_batches()).split())


def test_a_value_never_joins_the_words_beside_it() -> None:
    assert run("SELECT 10 -?\nAND s = 'x'", -5) == "SELECT 10 - -5 AND s = 'x'"
    assert run("SELECT a=?AND b<?OR?", 5, -1.5, Decimal("-0.5")) == "SELECT a= 5 AND b< -1.5D OR -0.5BD"
    assert run("SELECT INTERVAL ?DAY, '?'", -3) == "SELECT INTERVAL -3 DAY, '?'"
    assert run("SELECT * FROM t LIMIT?", "7") == "SELECT * FROM t LIMIT 7"


def test_dates_and_timestamps_are_times_of_the_lake_after_its_words_and_literals_after_those_of_spark() -> None:
    day, moment = datetime.date(2024, 6, 1), datetime.datetime(2024, 6, 1, 1, tzinfo=datetime.UTC)
    assert run("SUBSCRIBE t AS OF ? UP TO ?", day, moment) == "SUBSCRIBE t AS OF 1717200000000 UP TO 1717203600000"
    assert run("SELECT * FROM t VERSION AS OF ?", "week") == "SELECT * FROM t VERSION AS OF 'week'"
    assert run("SELECT * FROM t TIMESTAMP AS OF ?", day) == "SELECT * FROM t TIMESTAMP AS OF DATE'2024-06-01'"
    assert with_nulls("SELECT * FROM t VERSION AS OF ?").split()[-1] == "'main'"


def test_a_statement_without_parameters_needs_no_row_and_takes_no_value() -> None:
    assert bound("DROP HOLD h", []) == "DROP HOLD h"
    with pytest.raises(LakeholdError, match="do not fit"):
        run("DROP HOLD h", 1)
    with pytest.raises(LakeholdError, match="do not fit"):
        bound("ALTER HOLD h ADVANCE TO ?", [])
