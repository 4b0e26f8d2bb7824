"""Sessions of Spark Connect in programs that open lakes: beside classic ones, given ones, and ones that cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

WITHIN_S = 300

BOTH_KINDS = """
import sys

from lakehold.errors import LakeholdError
from lakehold.lake import connect
from pyspark.sql import SparkSession

(remote,) = sys.argv[1:]

def rows(**how):
    with connect("lake", **how) as lake:
        return lake.sql("SELECT id FROM s.t").rows

with connect("lake") as lake:
    lake.sql("CREATE NAMESPACE s; CREATE TABLE s.t AS SELECT 1 AS id")
given = SparkSession.builder.remote(remote).create()
try:
    rows()
except LakeholdError as error:
    assert error.code == "spark-start"
    assert "spark=session.cloneSession()" in error.hint and "spark_remote=" in error.hint
else:
    raise AssertionError("two kinds of sessions")
given.range(1).count()  # a server does not know a session before
clone = given.cloneSession()
clone.release_session_on_close = True
assert rows(spark=clone) == [(1,)]
clone.stop()
given.stop()
assert rows(spark_remote=remote) == [(1,)]
assert rows() == [(1,)]
"""
"""Begins with the environment of a program that has a session of Spark Connect, as a notebook's commands do."""

BESIDE_A_CLASSIC_LAKE = """
import sys

from lakehold.lake import connect

(remote,) = sys.argv[1:]

with connect("one") as one:
    one.sql("CREATE NAMESPACE s; CREATE TABLE s.t AS SELECT 1 AS id")
    with connect("between", spark_remote=remote) as between:
        assert between.sql("SELECT 2").rows == [(2,)]
    with connect("three") as three:
        three.sql("CREATE NAMESPACE s; CREATE TABLE s.t AS SELECT 3 AS id")
        assert [lake.sql("SELECT id FROM s.t").rows for lake in (one, three)] == [[(1,)], [(3,)]]
"""

AFTER_THE_FIRST_OF_TWO = """
import sys

from lakehold.errors import LakeholdError
from lakehold.lake import connect
from pyspark.sql import functions

(remote,) = sys.argv[1:]

def refused(lake):
    try:
        lake.sql("SELECT 1")
    except LakeholdError as error:
        return error.code
    raise AssertionError("two kinds of sessions")

first, second, classic = connect("one", spark_remote=remote), connect("two", spark_remote=remote), connect("three")
for lake in (first, second):
    lake.sql("SELECT 1")
first.close()
assert refused(classic) == "spark-start"
assert second.spark.range(1).select(functions.col("id")).collect() == [(0,)]
second.close()
assert classic.sql("SELECT 3").rows == [(3,)]
classic.close()
"""

ON_THE_SERVER_OF_A_GIVEN_SESSION = """
import sys

from lakehold.lake import connect
from pyspark.sql import SparkSession

given = SparkSession.builder.remote(sys.argv[1]).create()
with connect("lake", spark=given) as lake:
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.t AS SELECT 1 AS id;"
        "CREATE MATERIALIZED VIEW s.v AS SELECT id, count(*) AS n FROM s.t GROUP BY id"
    )
    lake.publish("s.v")
    assert lake.sql("SELECT * FROM s.v").rows == [(1, 1)]
given.stop()
"""

NOT_PREPARED = """
import sys

from lakehold.errors import LakeholdError
from lakehold.lake import connect
from pyspark.sql import SparkSession

with connect("lake", spark_remote=sys.argv[1], catalog_properties={"io-impl": "no.such.FileIO"}) as lake:
    for _ in range(2):
        try:
            lake.sql("SELECT 1")
        except LakeholdError as error:
            assert error.code == "spark-start" and "no.such.FileIO" in error.detail, (error.code, error.detail)
        else:
            raise AssertionError("it has no such class")
        assert SparkSession.getActiveSession() is None, "it was stopped"
"""


@pytest.mark.usefixtures("jvm")
def test_a_program_uses_classic_spark_before_and_after_spark_connect(spark_connect: str, tmp_path: Path) -> None:
    run(BOTH_KINDS, tmp_path, spark_connect, SPARK_CONNECT_MODE_ENABLED="1")


@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize("program", [BESIDE_A_CLASSIC_LAKE, AFTER_THE_FIRST_OF_TWO], ids=["closed", "open"])
def test_a_classic_lake_gets_a_session_of_its_own_once_no_lake_uses_spark_connect(
    spark_connect: str, tmp_path: Path, program: str
) -> None:
    run(program, tmp_path, spark_connect)


def test_a_lake_works_on_the_server_of_its_given_session_alone(spark_connect: str, tmp_path: Path) -> None:
    run(ON_THE_SERVER_OF_A_GIVEN_SESSION, tmp_path, spark_connect, LAKEHOLD_SPARK_REMOTE="sc://127.0.0.1:1")


def test_a_session_that_cannot_be_prepared_is_stopped(spark_connect: str, tmp_path: Path) -> None:
    run(NOT_PREPARED, tmp_path, spark_connect)


def run(program: str, directory: Path, *arguments: str, **variables: str) -> None:
    """Run a program that has no session yet, until it ends by itself."""
    command = [sys.executable, "-c", program, *arguments]
    subprocess.run(command, cwd=directory, env={**os.environ, **variables}, check=True, timeout=WITHIN_S)
