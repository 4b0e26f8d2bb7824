"""The lake's side of `lakehold verify`, which Spark reads while the database is read."""

from __future__ import annotations

from contextlib import suppress

import pytest

from lakehold.lake import Lake
from lakehold.session import another_session
from lakehold.verify.lake_rows import LakeRows
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

_ROWS = 3_000_000


class _DatabaseFailedError(Exception):
    pass


@pytest.mark.usefixtures("jvm")
def test_spark_stops_reading_when_the_read_of_the_database_fails(lake: Lake) -> None:
    spark = lake.spark
    name = f"{lake.settings.catalog_name}.shop.many"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.settings.catalog_name}.shop")
    spark.range(0, _ROWS, numPartitions=64).selectExpr("id", "concat('row ', id) AS v").writeTo(name).create()
    ((snapshot_id,),) = spark.sql(f"SELECT snapshot_id FROM {name}.snapshots").collect()
    rows = LakeRows(spark, name, snapshot_id, ("id", "v"), 1)

    with another_session(spark, lake.settings) as own:
        with rows.sums_meanwhile(own) as sums:
            pass
        assert int(sums.result().rows.sum()) == _ROWS

        with suppress(_DatabaseFailedError), rows.sums_meanwhile(own) as sums:
            wait_for(lambda: bool(spark.sparkContext.statusTracker().getActiveJobsIds()), "Spark reads")
            raise _DatabaseFailedError
    assert "cancelled" in str(sums.exception())
