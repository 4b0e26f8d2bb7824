"""Views and subscriptions with temporary functions and variables: another session, which publishes, does not have them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lakehold.errors import DefinitionError, LakeholdError
from tests.conftest import LakeFactory
from tests.published_shop import Shop

pytestmark = pytest.mark.spark

CLIENT = """
import json, sys
from lakehold.errors import LakeholdError
from lakehold.lake import connect

request = json.load(sys.stdin)
with connect(**request["settings"]) as lake:
    for statement in request["before"]:
        lake.sql(statement)
    for statement in request["statements"]:
        try:
            lake.sql(statement)
            print("done")
        except LakeholdError as error:
            print(error.code)
"""
"""Runs in its own process, because a process with a classic session cannot be a Connect client."""


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = Shop(make_lake)
    made.write((1, "a"), (2, "b"))
    made.lake.spark.udf.register("twice", lambda number: 2 * number, "bigint")
    made.lake.sql("DECLARE OR REPLACE VARIABLE wanted BIGINT = 2")
    return made


@pytest.mark.parametrize(
    ("query", "missing"),
    [("SELECT twice(id) AS n FROM shop.t", "`twice`"), ("SELECT id FROM shop.t WHERE id = wanted", "`wanted`")],
)
def test_a_definition_with_what_other_sessions_lack_is_refused(shop: Shop, query: str, missing: str) -> None:
    lake = shop.lake
    assert lake.sql(f"SUBSCRIBE ({query})").rows, "this session can read the query"
    for create in (f"MATERIALIZED VIEW bi.v AS {query}", f"SUBSCRIPTION s INTO bi.s AS SUBSCRIBE ({query})"):
        with pytest.raises(DefinitionError, match="temporary function or variable") as refused:
            lake.sql(f"CREATE {create}")
        assert refused.value.code == "session-only"
        assert missing in refused.value.detail
    assert (
        lake.sql("SHOW MATERIALIZED VIEWS").rows
        == lake.sql("SHOW SUBSCRIPTIONS").rows
        == lake.sql("SHOW HOLDS").rows
        == []
    )


def test_a_session_of_spark_connect_is_as_strict(make_lake: LakeFactory, spark_connect: str, tmp_path: Path) -> None:
    lake = Shop(make_lake).lake
    queries = ("SELECT two() * id AS n FROM shop.t", "SELECT id FROM shop.t WHERE id = wanted", "SELECT id FROM shop.t")
    request = {
        "settings": {
            "warehouse": lake.settings.warehouse,
            "catalog_name": lake.settings.catalog_name,
            "spark_remote": spark_connect,
            "foreign_lag_ms": 0,
        },
        "before": [
            "INSERT INTO shop.t VALUES (1, 'a')",
            "CREATE TEMPORARY FUNCTION two() RETURNS BIGINT RETURN 2",
            "DECLARE OR REPLACE VARIABLE wanted BIGINT = 2",
        ],
        "statements": [
            statement
            for number, query in enumerate(queries)
            for statement in (
                f"SUBSCRIBE ({query})",
                f"CREATE MATERIALIZED VIEW bi.v{number} AS {query}",
                f"CREATE SUBSCRIPTION s{number} INTO bi.s{number} AS SUBSCRIBE ({query})",
            )
        ],
    }
    done = subprocess.run(
        [sys.executable, "-c", CLIENT],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*["done", "session-only", "session-only"] * 2, *["done"] * 3]


def test_an_sql_function_with_parameters_is_refused_with_a_way_out(shop: Shop) -> None:
    for create in ("CREATE TEMPORARY FUNCTION", "create or replace\n temporary function"):
        with pytest.raises(LakeholdError, match="function with parameters cannot be created") as refused:
            shop.lake.sql(f"SHOW TABLES; {create} double(n BIGINT) RETURNS BIGINT RETURN 2 * n")
        assert refused.value.code == "function-parameters"
        assert "udf.register" in refused.value.hint


def test_a_view_whose_function_is_gone_does_not_blame_its_columns(shop: Shop) -> None:
    lake = shop.lake
    lake.sql("CREATE MATERIALIZED VIEW bi.v AS SELECT abs(id) AS n FROM shop.t")
    # The function was there when the view was created: its table was not readable then, so nobody could tell.
    entry = lake.definitions.definitions().views["bi.v"]
    view = replace(entry.definition, query="SELECT gone(id) AS n FROM shop.t")
    lake.definitions.change(lambda known: known.with_entries([replace(entry, definition=view)]))
    with pytest.raises(LakeholdError, match="cannot resolve routine `gone`") as stopped:
        lake.publish("bi.v")
    assert stopped.value.code == "UNRESOLVED_ROUTINE"
