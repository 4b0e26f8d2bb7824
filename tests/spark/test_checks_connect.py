"""A check over Spark Connect has the same outcomes as on a session in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakehold.lake import Lake
from tests.client_program import output_of
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark

CLIENT = """
import json, sys
from lakehold.lake import connect

request = json.load(sys.stdin)
with connect(**request["settings"]) as lake:
    print(repr(lake.check("s.t", request["at_ms"]).outcomes))
"""
"""A separate process runs the client: a process with a classic Spark session cannot be a Connect client as well."""

EXPECTATIONS = [
    {
        "type": "expect_columns_to_have_types",
        "kwargs": {"types": {"id": "bigint", "price": "decimal(9,2)", "at": "date"}},
    },
    {"type": "expect_key_to_be_unique", "kwargs": {"key": ["id", "name"]}},
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "name"}},
    {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "name", "value_set": ["two"]}},
    {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "at", "max_value": {"$PARAMETER": "future"}, "strict_max": True},
    },
    {"type": "expect_column_max_to_be_between", "kwargs": {"column": "price", "max_value": 2}},
    {"type": "unexpected_rows_expectation", "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch} WHERE id = 2"}},
]


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    lake = make_lake(foreign_lag_ms=50)
    lake.sql("""
        CREATE NAMESPACE s;
        CREATE TABLE s.t (id BIGINT, name STRING, price DECIMAL(9, 2), at TIMESTAMP) USING iceberg;
        INSERT INTO s.t VALUES
            (1, 'one', 1.10, TIMESTAMP '2026-01-01'), (1, 'one', 2.20, TIMESTAMP '2100-01-01 12:00:00.5'), (2, NULL, NULL, NULL)
    """)
    return lake


def test_a_check_over_connect_has_the_same_outcomes(
    lake: Lake, make_lake: LakeFactory, spark_connect: str, tmp_path: Path
) -> None:
    (tmp_path / "expectations").mkdir()
    suite = {"name": "s.t", "expectations": EXPECTATIONS}
    (tmp_path / "expectations" / "s.t.json").write_text(json.dumps(suite))
    settings = {
        "warehouse": lake.settings.warehouse,
        "catalog_name": lake.settings.catalog_name,
        "foreign_lag_ms": 50,
        "expectations": str(tmp_path / "expectations"),
    }
    here = make_lake(**settings).check("s.t")
    assert [outcome.success for outcome in here.outcomes] == [False] * len(EXPECTATIONS)
    request = {"settings": {**settings, "spark_remote": spark_connect}, "at_ms": here.at_ms}
    assert output_of(CLIENT, cwd=tmp_path, given=json.dumps(request)) == f"{here.outcomes!r}\n"
