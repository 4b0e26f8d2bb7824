"""SUBSCRIBE over Spark Connect gives the same rows and types as with a session in this process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lakehold.lake import Lake
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark

CLIENT = """
import json, sys
from lakehold.lake import connect

request = json.load(sys.stdin)
with connect(**request["settings"]) as lake:
    for statement in request["statements"]:
        result = lake.sql(statement)
        print(repr((result.columns, result.rows)))
"""
"""Runs in its own process, because a process with a classic session cannot be a Connect client."""

STATEMENTS = (
    "SUBSCRIBE s.t AS OF {first}",
    "SUBSCRIBE s.t WITHIN TIMESTAMP ORDER BY length(name) DESC, mz_diff WITH (PROGRESS) AS OF {first}",
    "SUBSCRIBE s.t ENVELOPE UPSERT (KEY (id)) AS OF {first}",
    "SUBSCRIBE s.t ENVELOPE DEBEZIUM (KEY (id)) WITH (SNAPSHOT = false) AS OF {first}",
    "SUBSCRIBE (SELECT id + 1 AS next, upper(name) AS name, tags FROM s.t WHERE id <> 2) AS OF {first}",
    "SUBSCRIBE (SELECT id % 2 AS half, count(*) AS n, sum(price) AS total FROM s.t GROUP BY id % 2) AS OF {first}",
    "SUBSCRIBE (SELECT t.name, u.note FROM s.t AS t JOIN s.u AS u ON t.id = u.id) AS OF {both}",
    "SELECT * FROM s.t AS OF {first}",
    "SELECT * FROM CHANGES(s.t AS OF {first} UP TO {upper}) ORDER BY mz_timestamp, id, mz_diff",
    "SELECT name, c.* FROM CHANGES(s.t AS OF {first} UP TO {upper}, ENVELOPE DEBEZIUM (KEY (id)), NET) AS c"
    " JOIN s.t ON t.id = c.id WHERE c.id IN (SELECT id FROM CHANGES(s.t AS OF {first} UP TO {upper})) ORDER BY c.id",
)


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    """Return a lake with two tables that changed."""
    lake = make_lake(foreign_lag_ms=50)
    lake.sql("""
        CREATE NAMESPACE s;
        CREATE TABLE s.t (
            id BIGINT, name STRING, price DECIMAL(9, 2), day DATE, at TIMESTAMP, tags ARRAY<STRING>,
            more STRUCT<a: INT, b: MAP<STRING, DOUBLE>>
        ) USING iceberg TBLPROPERTIES (
            'format-version' = '3', 'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read'
        );
        INSERT INTO s.t VALUES
            (1, 'one', 1.10, DATE '2026-01-01', TIMESTAMP '2026-01-01 12:00:00.000001', array('x', NULL),
             named_struct('a', 1, 'b', map('k', 0.5D))),
            (2, 'two', 2.20, NULL, NULL, array(), NULL),
            (3, NULL, NULL, NULL, NULL, NULL, named_struct('a', CAST(NULL AS INT), 'b', map()));
        UPDATE s.t SET price = price + 1, name = 'ONE' WHERE id = 1;
        DELETE FROM s.t WHERE id = 2;
        CREATE TABLE s.u (id BIGINT, note STRING) USING iceberg;
        INSERT INTO s.u VALUES (1, 'first'), (3, 'third');
        ALTER TABLE s.t ADD COLUMN city STRING;
        INSERT INTO s.t VALUES (4, 'four', 4.40, NULL, NULL, NULL, NULL, 'Ulm');
        DELETE FROM s.u WHERE id = 3
    """)
    return lake


@pytest.mark.parametrize("driver_diff_max_rows", [200_000, pytest.param(0, marks=pytest.mark.soak)])
def test_spark_connect_gives_the_same_rows_and_types(
    lake: Lake, make_lake: LakeFactory, spark_connect: str, tmp_path: Path, driver_diff_max_rows: int
) -> None:
    settings = {
        "warehouse": lake.settings.warehouse,
        "catalog_name": lake.settings.catalog_name,
        "foreign_lag_ms": 50,
        "driver_diff_max_rows": driver_diff_max_rows,
    }
    first, both = (lake.catalog.load_table(name).metadata.snapshot_log[0].timestamp_ms for name in ("s.t", "s.u"))
    upper_ms = lake.open_subscription("SUBSCRIBE s.t").window.until_ms
    statements = [
        text.format(first=first, both=both, upper=upper_ms)
        + ("" if text.startswith("SELECT") else f" UP TO {upper_ms}")
        for text in STATEMENTS
    ]
    here = make_lake(**settings)
    results = [here.sql(statement) for statement in statements]
    assert all(result.rows for result in results)
    expected = [repr((result.columns, result.rows)) for result in results]
    assert over_connect({**settings, "spark_remote": spark_connect}, statements, tmp_path) == expected


def over_connect(settings: dict[str, object], statements: Sequence[str], directory: Path) -> list[str]:
    """Return columns and rows of each statement, as the client prints them."""
    client = subprocess.run(
        [sys.executable, "-c", CLIENT],
        input=json.dumps({"settings": settings, "statements": statements}),
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert client.returncode == 0, client.stderr
    return client.stdout.splitlines()
