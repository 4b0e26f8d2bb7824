"""The last of the lakes that started a Spark session stops it; a lake that found a running session leaves it."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from lakehold.errors import LakeholdError
from lakehold.lake import Lake, connect
from tests.catalog_servers import s3_server
from tests.conftest import LakeFactory
from tests.s3_server import S3Server

__all__ = ["s3_server"]

pytestmark = pytest.mark.spark

TWO_LAKES = """
from lakehold.lake import connect
from pyspark.sql import SparkSession

with connect("one", catalog_name="one") as one:
    one.sql("CREATE NAMESPACE shop; CREATE TABLE shop.orders AS SELECT 1 AS id")
    with connect("two", catalog_name="two") as two, connect("three", catalog_name="one") as three:
        two.sql("CREATE NAMESPACE shop; CREATE TABLE shop.orders AS SELECT 2 AS id")
        three.sql("CREATE NAMESPACE shop; CREATE TABLE shop.orders AS SELECT 3 AS id")
        assert [lake.sql("SELECT id FROM shop.orders").rows for lake in (one, two, three)] == [[(1,)], [(2,)], [(3,)]]
        two.sql("DELETE FROM shop.orders")
        assert [lake.sql("SELECT id FROM shop.orders").rows for lake in (one, two, three)] == [[(1,)], [], [(3,)]]
    assert one.sql("SELECT 2").rows == [(2,)], "one lake closed, the other goes on"
assert SparkSession.getActiveSession() is None, "nobody is left who needs it"
with connect("two", catalog_name="two") as two:
    assert two.sql("SELECT 3").rows == [(3,)]
"""

AFTER_FAILED_STARTS = """
import os
from lakehold.errors import LakeholdError
from lakehold.lake import connect
from pyspark.sql import SparkSession

def fails_to_start(**settings):
    with connect("one", **settings) as lake:
        try:
            lake.sql("SELECT 1")
        except LakeholdError as error:
            return f"{error.code}: {error.detail}"
    raise AssertionError("it started")

java = os.environ.pop("JAVA_HOME", None)
os.environ["JAVA_HOME"] = "nowhere"
assert fails_to_start().startswith("java-start: ")
del os.environ["JAVA_HOME"]
if java:
    os.environ["JAVA_HOME"] = java
assert fails_to_start(spark_master="nonsense").startswith("java-start: ")
no_class = {"spark.sql.defaultCatalog": "lake", "spark.sql.catalog.lake": "no.such.Class"}
assert "no.such.Class" in fails_to_start(spark_conf=no_class)
for place in ("two", "three"):
    with connect(place) as lake:
        assert lake.sql("SELECT 1").rows == [(1,)], "a closed lake takes no catalog"
    assert SparkSession.getActiveSession() is None, "nobody is left who needs it"
"""

BESIDE_ANOTHER_LAKE = """
from lakehold.lake import connect
from lakehold.other_sessions import another_session
from lakehold.session import session_conf
from lakehold.settings import load_settings
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]")
for name, value in session_conf(load_settings(warehouse="one", catalog_name="lake", spark_master="local[1]")).items():
    builder = builder.config(name, value)
given = builder.getOrCreate().newSession()
for name in given.conf.getAll:
    if name.startswith("spark.sql.catalog."):
        given.conf.unset(name)
with connect("two", spark=given, catalog_name="lake") as lake:
    lake.sql("CREATE NAMESPACE lake.only_here")
    with another_session(lake.spark, lake.settings) as beside:
        assert ("only_here",) in [tuple(row) for row in beside.sql("SHOW NAMESPACES IN lake").collect()]
"""

OF_ANOTHER_PROGRAM = """
import lakehold
from lakehold.session import EXTENSION
from pyspark.sql import SparkSession

given = SparkSession.builder.master("local[1]").config("spark.sql.extensions", "org.example.Extensions").getOrCreate()
with lakehold.connect("lake", spark=given) as lake:
    try:
        lake.sql("SELECT 1")
    except lakehold.LakeholdError as error:
        assert error.code == "session-incomplete"
        assert error.detail.startswith(
            "Missing: iceberg-spark-runtime-4.1_2.13, spark-sql-kafka-0-10_2.13, spark-avro_2.13, sqlite-jdbc, the extension "
        ), error.detail
        conf = dict(line.strip().split("=") for line in error.hint.splitlines()[1:])
    else:
        raise AssertionError("the session has no jars")
assert conf.keys() == {"spark.jars.packages", "spark.sql.extensions"}
assert conf["spark.sql.extensions"] == f"org.example.Extensions,{EXTENSION}"
artifacts = [package.split(":")[1] for package in conf["spark.jars.packages"].split(",")]
assert artifacts == ["iceberg-spark-runtime-4.1_2.13", "spark-sql-kafka-0-10_2.13", "spark-avro_2.13", "sqlite-jdbc"]
"""

WITH_JARS_ALONE = """
import lakehold
from lakehold import artifacts
from lakehold.session import EXTENSION
from pyspark.sql import SparkSession

jars = ",".join(map(str, artifacts.jars("spark")))
given = SparkSession.builder.master("local[1]").config("spark.jars", jars).getOrCreate()
with lakehold.connect("lake", spark=given) as lake:
    try:
        lake.sql("SELECT 1")
    except lakehold.LakeholdError as error:
        assert error.detail.startswith(f"Missing: the extension {EXTENSION}. "), error.detail
    else:
        raise AssertionError("the session lacks an extension")
"""

IN_AN_OBJECT_STORE = """
import json
import sys

import lakehold
from lakehold import artifacts
from pyspark.sql import SparkSession

jars = ",".join(map(str, artifacts.jars("spark")))
given = SparkSession.builder.master("local[1]").config("spark.jars", jars).getOrCreate()
with lakehold.connect(**json.loads(sys.argv[1]), spark=given) as lake:
    try:
        lake.sql("SELECT 1")
    except lakehold.LakeholdError as error:
        assert error.detail.startswith("Missing: iceberg-aws-bundle, the extension "), error.detail
        assert "spark.jars.packages=org.apache.iceberg:iceberg-aws-bundle:" in error.hint, error.hint
    else:
        raise AssertionError("the session lacks the store's client")
"""


@pytest.mark.usefixtures("jvm")
@pytest.mark.parametrize(
    "program",
    [OF_ANOTHER_PROGRAM, pytest.param(WITH_JARS_ALONE, marks=pytest.mark.soak)],
    ids=["everything", "the extension"],
)
def test_all_that_a_given_session_lacks_is_named_at_once(tmp_path: Path, program: str) -> None:
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


@pytest.mark.stack
@pytest.mark.usefixtures("jvm")
def test_the_client_of_an_object_store_is_named_with_what_else_a_given_session_lacks(
    tmp_path: Path, s3_server: S3Server
) -> None:
    place = json.dumps(s3_server.new_lake(tmp_path))
    subprocess.run([sys.executable, "-c", IN_AN_OBJECT_STORE, place], cwd=tmp_path, check=True)


@pytest.mark.usefixtures("jvm")
def test_a_lake_leaves_a_session_that_it_did_not_start(spark: SparkSession, tmp_path: Path) -> None:
    own = SparkSession.builder.getOrCreate()
    own.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        before = own.conf.getAll
        with connect(str(tmp_path), catalog_name="visitor") as lake:
            assert lake.sql("SELECT current_catalog(), current_timezone()").rows == [("visitor", "UTC")]
            assert own.sql("SELECT current_timezone()").first() == ("Asia/Tokyo",)
        assert own.conf.getAll == before
    finally:
        own.conf.set("spark.sql.session.timeZone", "UTC")
    assert spark.sql("SELECT 2").first() == (2,)


def test_two_lakes_that_were_given_one_session_read_their_own_tables(make_lake: LakeFactory) -> None:
    one, two = make_lake(), make_lake()
    for n, lake in enumerate((one, two)):
        lake.sql(f"CREATE NAMESPACE shop; CREATE TABLE shop.orders AS SELECT {n} AS id")
    assert one.sql("SELECT id FROM shop.orders").rows == [(0,)]
    two.sql("DELETE FROM shop.orders")
    assert one.sql("SELECT id FROM shop.orders").rows == [(0,)]
    assert two.sql("SELECT id FROM shop.orders").rows == []


def test_a_given_session_whose_catalog_keeps_tables_in_a_cache_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    given, conf = another_user_of(spark), "spark.sql.catalog.cached"
    settings = {"warehouse": f"file://{tmp_path}", "type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"}
    given.conf.set(conf, "org.apache.iceberg.spark.SparkCatalog")
    for name, value in settings.items():
        given.conf.set(f"{conf}.{name}", value)
    with connect(str(tmp_path), spark=given, catalog_name="cached") as lake:
        with pytest.raises(LakeholdError) as refusal:
            lake.sql("SELECT 1")
        assert refusal.value.code == "session-incomplete"
        assert refusal.value.hint.endswith(f"\n  {conf}.cache-enabled=false")
        given.conf.set(f"{conf}.cache-enabled", "false")
        assert lake.sql("SELECT 1").rows == [(1,)]
    given.conf.unset(f"{conf}.cache-enabled")
    given.conf.set(f"{conf}.cache.expiration-interval-ms", "0")
    with connect(str(tmp_path), spark=given, catalog_name="cached") as lake:
        assert lake.sql("SELECT 1").rows == [(1,)], "Iceberg drops such a cache at once"


def test_values_do_not_depend_on_the_settings_of_a_given_session(spark: SparkSession, tmp_path: Path) -> None:
    given = another_user_of(spark)
    others = {
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.caseSensitive": "true",
    }
    for name, value in others.items():
        given.conf.set(name, value)
    with connect(str(tmp_path), spark=given, catalog_name="shared") as lake:
        lake.sql("CREATE NAMESPACE s; CREATE TABLE s.t AS SELECT timestamp'2026-01-01 00:30:00Z' AS at")
        assert lake.sql("SELECT date(AT), typeof(at) FROM s.t").rows == [(date(2026, 1, 1), "timestamp")]
        assert lake.sql("SELECT size(CAST(NULL AS ARRAY<INT>))").rows == [(None,)], "-1 without ANSI mode"


def test_a_published_table_does_not_follow_the_time_zone_of_a_session(lake: Lake) -> None:
    lake.sql(
        "CREATE NAMESPACE s; CREATE TABLE s.t AS SELECT timestamp'2026-01-01 23:30:00Z' AS at;"
        "CREATE MATERIALIZED VIEW s.days AS SELECT date(at) AS day, count(*) AS n FROM s.t GROUP BY 1;"
        "SET TIME ZONE 'Asia/Tokyo'"
    )
    assert lake.sql("SELECT current_timezone()").rows == [("Asia/Tokyo",)]
    lake.publish("s.days")
    assert lake.sql("SELECT * FROM s.days").rows == [(date(2026, 1, 1), 1)]


def another_user_of(spark: SparkSession) -> SparkSession:
    """Return a session with settings of its own."""
    made = getattr(spark, "cloneSession", None) or spark.newSession
    return cast(SparkSession, made())


@pytest.mark.usefixtures("jvm")
def test_spark_stops_with_the_last_of_the_lakes_that_share_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", TWO_LAKES], cwd=tmp_path, check=True)


@pytest.mark.usefixtures("jvm")
def test_spark_stops_with_its_last_lake_although_it_failed_to_start_before(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", AFTER_FAILED_STARTS], cwd=tmp_path, check=True)


@pytest.mark.usefixtures("jvm")
def test_a_session_beside_that_of_a_lake_has_the_catalog_of_the_lake(tmp_path: Path) -> None:
    """Begin with a first session of the process, from which new sessions come, that has another lake's catalog of that name."""
    subprocess.run([sys.executable, "-c", BESIDE_ANOTHER_LAKE], cwd=tmp_path, check=True)


@pytest.mark.usefixtures("jvm")
def test_two_lakes_of_a_session_have_two_names(spark: SparkSession, tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    spark.newSession().createDataFrame([(1,)], "n int")  # which makes that session the active one
    with connect(first, spark=spark, catalog_name="twin") as lake:
        lake.sql("CREATE NAMESPACE twin.only_here")
    with connect(second, spark=spark, catalog_name="twin") as lake, pytest.raises(LakeholdError) as refusal:
        lake.sql("SHOW NAMESPACES")
    assert refusal.value.code == "catalog-taken"
    assert refusal.value.detail == f"Its warehouse is file://{first}, this lake's is file://{second}."
    other = f"{tmp_path}/other.db"
    with (
        connect(first, spark=spark, catalog_name="twin", catalog_uri=f"sqlite:///{other}") as lake,
        pytest.raises(LakeholdError) as refusal,
    ):
        lake.sql("SHOW NAMESPACES")
    assert refusal.value.code == "catalog-taken"
    assert refusal.value.detail == f"Its uri is jdbc:sqlite:{first}/catalog.db, this lake's is jdbc:sqlite:{other}."
    conf = "spark.sql.catalog.alike"
    spark.conf.set(conf, "org.apache.iceberg.spark.SparkCatalog")
    for name, value in {"type": "hadoop", "warehouse": f"file://{first}"}.items():
        spark.conf.set(f"{conf}.{name}", value)
    with connect(first, spark=spark, catalog_name="alike") as lake, pytest.raises(LakeholdError) as refusal:
        lake.sql("SHOW NAMESPACES")
    assert refusal.value.detail == "Its type is hadoop, this lake's is jdbc."
    with connect(first + "/", spark=spark, catalog_name="twin") as lake:
        assert ("only_here",) in lake.sql("SHOW NAMESPACES").rows
    catalog, named = f"sqlite:///{first}/catalog.db", {"warehouse": f"file://{first}"}
    with connect(second, spark=spark, catalog_uri=catalog, catalog_name="twin", catalog_properties=named) as lake:
        assert ("only_here",) in lake.sql("SHOW NAMESPACES").rows, "the warehouse that the catalog names counts"
