"""Spark takes texts and names literally, whatever characters they have and however the session is configured."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from lakehold.lake import Lake
from lakehold.spark_sql import PLAIN_TEXT_CONF, alter_table, literal, quoted

pytestmark = pytest.mark.spark

HOSTILE = "${env:HOME} ${spark.app.name} \\ \\u0041 \\% it's ''x'' \"q\" `b``c` {d} %s -- /* \n\t\0 ü 😀"
"""Characters that Spark, Iceberg's parser or Python's formatting could interpret."""


@pytest.fixture
def odd_settings(spark: SparkSession) -> Iterator[None]:
    """Configure the user's session to interpret texts."""
    before = {name: spark.conf.get(name, None) for name in PLAIN_TEXT_CONF}
    for name in PLAIN_TEXT_CONF:
        spark.conf.set(name, "true")
    yield
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


@pytest.mark.parametrize(
    "value",
    [
        HOSTILE,
        "\\",
        "'",
        "",
        b"",
        b"${env:HOME}'\\\x00\xff",
        -(2**31),
        2**63 - 1,
        float("inf"),
        Decimal("-1E-20"),
        date(1, 1, 1),
        datetime.fromisoformat("0001-01-01T00:00:00.000001"),
        True,
    ],
)
def test_spark_reads_a_literal_as_the_value(lake: Lake, value: object) -> None:
    ((found,),) = lake.spark.sql(f"SELECT {literal(value)}").collect()
    assert (found, type(found)) == (bytearray(value) if isinstance(value, bytes) else value, type(found))


def test_an_instant_does_not_depend_on_the_session(lake: Lake) -> None:
    instant = datetime(2026, 2, 1, 3, tzinfo=UTC)
    assert lake.spark.sql(f"SELECT unix_micros({literal(instant)}) / 1000000").collect() == [(instant.timestamp(),)]


@pytest.mark.usefixtures("odd_settings")
@pytest.mark.filterwarnings("ignore:The SQL config 'spark.sql.parser.escapedStringLiterals' has been deprecated")
def test_a_session_of_the_user_substitutes_nothing(lake: Lake) -> None:
    spark = lake.spark
    assert {name: spark.conf.get(name) for name in PLAIN_TEXT_CONF} == PLAIN_TEXT_CONF
    assert lake.sql("SELECT '${env:HOME}', '\\\\'").rows == [("${env:HOME}", "\\")]
    found: list[object] = []

    def elsewhere() -> None:
        found.extend(spark.range(1).selectExpr("'${env:HOME}'", literal(HOSTILE)).collect())

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [("${env:HOME}", HOSTILE)]


@pytest.mark.parametrize(
    "name", [HOSTILE.replace("\0", ""), "create branch", "write ordered by", "set identifier fields"]
)
def test_a_column_may_have_any_name(lake: Lake, name: str) -> None:
    table = f"{quoted(lake.settings.catalog_name)}.s.t"
    lake.spark.sql("CREATE NAMESPACE s")
    lake.spark.sql(f"CREATE TABLE {table} ({quoted('first ' + name)} int) USING iceberg")
    lake.spark.sql(alter_table(table, f"ADD COLUMN {quoted(name)} int"))
    assert lake.spark.table(table).columns == ["first " + name, name]
