"""A Spark Connect server on loopback, over which tests run clients that are processes of their own."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from lakehold.servers import HOST
from lakehold.session import SHORT_RUN_OPTIONS
from lakehold.settings import load_settings
from lakehold.spark_server import lifecycle


@pytest.fixture(scope="session")
def spark_connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address. It knows no lake: each client's session brings its own."""
    directory = tmp_path_factory.mktemp("spark-connect")
    settings = load_settings(
        warehouse=str(directory),
        spark_driver_memory="1g",
        spark_master="local[2]",
        spark_conf={"spark.driver.extraJavaOptions": SHORT_RUN_OPTIONS, "spark.sql.shuffle.partitions": "2"},
    )
    try:
        yield lifecycle.up(directory, settings, free_port())
    finally:
        lifecycle.down(directory)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        port: int = listening.getsockname()[1]
        return port
