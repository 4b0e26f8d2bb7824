"""A Spark Connect server on loopback, over which tests run clients that are processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from lakehold.session import SHORT_RUN_OPTIONS, session_conf
from lakehold.settings import load_settings
from tests.lakehold_process import wait_until

_HOST = "127.0.0.1"
_LISTENS_WITHIN_S = 120
_STOPS_WITHIN_S = 30


@pytest.fixture(scope="session")
def spark_connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address. It knows no lake: each client's session brings its own."""
    directory = tmp_path_factory.mktemp("spark-connect")
    port = _free_port()
    settings = load_settings(
        warehouse=str(directory),
        spark_driver_memory="1g",
        spark_conf={"spark.driver.extraJavaOptions": SHORT_RUN_OPTIONS, "spark.sql.shuffle.partitions": "2"},
    )
    of_a_lake = f"spark.sql.catalog.{settings.catalog_name}"
    conf = {
        **{name: value for name, value in session_conf(settings).items() if not name.startswith(of_a_lake)},
        "spark.connect.grpc.binding.address": _HOST,
        "spark.connect.grpc.binding.port": str(port),
    }
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *("--master", "local[2]"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
        "spark-internal",
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with (directory / "server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: server.poll() is not None or _listens(port), within_s=_LISTENS_WITHIN_S)
        assert server.poll() is None, (directory / "server.log").read_text()[-2_000:]
        yield f"sc://{_HOST}:{port}"
    finally:
        server.terminate()
        server.wait(_STOPS_WITHIN_S)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind((_HOST, 0))
        port: int = listening.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((_HOST, port)) == 0
