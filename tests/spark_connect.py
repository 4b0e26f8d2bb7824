"""A Spark Connect server on loopback, used by tests whose clients are separate processes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakehold.session import SHORT_RUN_OPTIONS
from lakehold.settings import Settings, load_settings
from lakehold.spark_server import lifecycle
from tests.stack_fixtures import PORTS_PER_WORKER, are_free, first_port


@pytest.fixture(scope="session")
def spark_connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a server, and return its address. The server has no lake: each client's session adds its own."""
    with running_server(tmp_path_factory.mktemp("spark-connect"), {"spark.sql.shuffle.partitions": "2"}) as remote:
        yield remote


@contextmanager
def running_server(directory: Path, conf: dict[str, str]) -> Iterator[str]:
    """Run a server on a free port until the block ends; yields its address."""
    settings = session_settings(directory, conf)
    try:
        yield lifecycle.up(directory, settings, free_port())
    finally:
        lifecycle.down(directory)


def session_settings(directory: Path, conf: dict[str, str]) -> Settings:
    """Return the settings of a session for any lake: with the jars and options that a lake in an object store needs."""
    return load_settings(
        warehouse="s3://none/lake",
        catalog_uri=f"sqlite:///{directory}/catalog.db",
        catalog_name="session",
        catalog_properties={"s3.endpoint": "http://none"},
        spark_driver_memory="1g",
        spark_master="local[2]",
        spark_conf={"spark.driver.extraJavaOptions": SHORT_RUN_OPTIONS, **conf},
    )


def free_port() -> int:
    """Return a port that nobody listens on, and that `free_port` has given to nobody for long."""
    return next(port for port in _ports if are_free(range(port, port + 1)))


_ports = itertools.cycle(range(first_port() + PORTS_PER_WORKER // 2, first_port() + PORTS_PER_WORKER))
