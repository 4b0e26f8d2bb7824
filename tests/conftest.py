"""What all tests share: one Spark session, lakes in temporary directories, the live stack."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehold.lake import Lake, connect
from lakehold.session import SHORT_RUN_OPTIONS, session_conf
from lakehold.settings import load_settings
from tests.stack_fixtures import database, stack, stack_directory

__all__ = ["database", "stack", "stack_directory"]

_names = itertools.count()

LakeFactory = Callable[..., Lake]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session; each lake brings its own catalog to it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = load_settings(
        warehouse=str(tmp_path_factory.mktemp("session")),
        spark_driver_memory="1g",
        spark_master="local[2]",
        spark_conf={"spark.driver.extraJavaOptions": SHORT_RUN_OPTIONS, "spark.sql.shuffle.partitions": "2"},
    )
    builder = SparkSession.builder.master(settings.spark_master).appName("lakehold-tests")
    for name, value in session_conf(settings).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def make_lake(spark: SparkSession, tmp_path: Path) -> Iterator[LakeFactory]:
    """Opens lakes over the shared session, each with a catalog of its own; settings as arguments."""
    opened: list[Lake] = []

    def make(warehouse: Path | None = None, **settings: Any) -> Lake:
        name = f"lake{next(_names)}"
        lake = connect(str(warehouse or tmp_path / name), spark=spark, **{"catalog_name": name, **settings})
        opened.append(lake)
        return lake

    yield make
    for lake in opened:
        lake.close()


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    """An empty lake."""
    return make_lake()
