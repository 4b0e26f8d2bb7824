"""One migrated Airflow for all tests of DAGs, whose tasks use one Spark Connect server, as deployed ones do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lakehold.lake import Lake, connect
from tests.airflow_process import AirflowProcess, airflow_process
from tests.shop_records import ShopRecords


@dataclass(frozen=True)
class Orchestrated:
    """A lake with a recorded shop, and the Airflow that ingests it."""

    airflow: AirflowProcess
    lake: Lake
    records: ShopRecords
    exports: Path


@pytest.fixture(scope="module")
def orchestrated(tmp_path_factory: pytest.TempPathFactory, spark_connect: str) -> Iterator[Orchestrated]:
    directory = tmp_path_factory.mktemp("airflow")
    server = urlsplit(spark_connect)
    suites = directory / "expectations"
    suites.mkdir()
    settings: dict[str, Any] = {
        "warehouse": str(directory / "lake"),
        "catalog_name": "orchestrated",
        "expectations": str(suites),
        "schemas": "",
        "foreign_lag_ms": "0",
        "lease_ms": "2000",
        "lease_renew_ms": "500",
    }
    connection = f"spark-connect://{server.hostname}:{server.port}"
    home = directory / "home"
    home.mkdir()
    exports = directory / "exports"
    exports.mkdir()
    with (
        connect(**settings) as lake,
        airflow_process(
            home, {"AIRFLOW_CONN_LAKEHOLD_SPARK": connection, "ORDERS_EXPORT": str(exports)}, **settings
        ) as airflow,
    ):
        yield Orchestrated(airflow, lake, ShopRecords(lake, directory / "recorded"), exports)
