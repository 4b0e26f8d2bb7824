"""The two sides of `lakehold verify`, which are read at the same time: the failure of one ends the read of the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pyarrow as pa
import pytest

from lakehold.lake import Lake
from lakehold.progress import NoProgress
from lakehold.session import another_session
from lakehold.upstream.found_columns import FoundColumn
from lakehold.verify.compared_columns import ComparedColumns
from lakehold.verify.database_rows import DatabaseRows
from lakehold.verify.lake_rows import LakeRows
from lakehold.verify.selected_rows import FirstKey
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

_ROWS = 3_000_000


class _DatabaseFailedError(Exception):
    pass


class _FailingRows:
    """The rows of a database that answers nothing, and then with an error."""

    estimate = 0
    version = ""
    standby_ms: int | None = None

    def __init__(self) -> None:
        self.fails = Event()

    def columns(self) -> tuple[FoundColumn, ...]:
        return ()

    def batches(self, texts: Sequence[str], first_key: FirstKey | None = None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        assert self.fails.wait(60)
        raise _DatabaseFailedError
        yield

    def cancel(self) -> None:
        self.fails.set()


@pytest.mark.usefixtures("jvm")
def test_spark_stops_reading_when_the_read_of_the_database_fails(lake: Lake) -> None:
    spark = lake.spark
    name = f"{lake.settings.catalog_name}.shop.many"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.settings.catalog_name}.shop")
    spark.range(0, _ROWS, numPartitions=64).selectExpr("id", "concat('row ', id) AS v").writeTo(name).create()
    ((snapshot_id,),) = spark.sql(f"SELECT snapshot_id FROM {name}.snapshots").collect()
    rows = _FailingRows()
    with another_session(spark, lake.settings) as own:
        lakes = LakeRows(own, name, snapshot_id, ("id", "v"), 1)
        assert int(lakes.sums().rows.sum()) == _ROWS
        ended: list[BaseException] = []

        def read_until_it_ends() -> None:
            with database.sums_meanwhile(task, own.interruptAll):
                try:
                    lakes.sums()
                except Exception as error:
                    ended.append(error)
                    raise

        database = DatabaseRows(rows, ComparedColumns((), (), ()))
        with NoProgress().task("read", unit="rows") as task, ThreadPoolExecutor(1) as threads:
            reading = threads.submit(read_until_it_ends)
            wait_for(lambda: bool(spark.sparkContext.statusTracker().getActiveJobsIds()), "Spark reads")
            rows.fails.set()
            with pytest.raises(_DatabaseFailedError):
                reading.result()
    assert "cancelled" in str(ended[0])


def test_the_read_of_the_database_ends_when_the_caller_fails() -> None:
    rows = _FailingRows()
    database = DatabaseRows(rows, ComparedColumns((), (), ()))
    interrupted: list[None] = []
    with (
        NoProgress().task("read", unit="rows") as task,
        pytest.raises(KeyboardInterrupt),
        database.sums_meanwhile(task, lambda: interrupted.append(None)) as theirs,
    ):
        raise KeyboardInterrupt
    assert isinstance(theirs.exception(timeout=0), _DatabaseFailedError)
