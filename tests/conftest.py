"""Fixtures that all tests share: one Spark session, lakes in temporary directories, the live stack."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakehold.lake import Lake, connect
from lakehold.session import session_conf
from tests.kafka_broker import broker
from tests.signal_handlers import handlers_restored
from tests.spark_archive import start_quickly
from tests.spark_connect import session_settings, spark_connect
from tests.stack_fixtures import database, stack, stack_directory

__all__ = ["broker", "database", "handlers_restored", "spark_connect", "stack", "stack_directory"]

_names = itertools.count()

LakeFactory = Callable[..., Lake]


def pytest_configure() -> None:
    """Let Spark start quickly: in tests only, since benchmarks and demos import this module as well."""
    start_quickly(os.environ)


INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings that let Spark interpret its plans: a query of a few rows takes less time than compiling code for it."""

# A test that passed once passes again, however busy the machine is; `--hypothesis-profile=default` searches for new examples.
hypothesis_settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("repeatable")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each worker whole files, and tests that share servers to the workers that start these; such tests begin first.

    Two workers start a stack each, one worker the Spark Connect server, and one the single servers.
    """
    groups = {item: _group(item) for item in items}
    on_stack = list(dict.fromkeys(item.path for item, group in groups.items() if group == "stack"))
    for item, group in groups.items():
        number = on_stack.index(item.path) % _STACKS if group == "stack" else ""
        groups[item] = f"{group}{number}"
        item.add_marker(pytest.mark.xdist_group(groups[item]))
    items.sort(key=lambda item: _FIRST.index(groups[item]) if groups[item] in _FIRST else len(_FIRST))


_STACKS = 2
_FIRST = (*(f"stack{number}" for number in range(_STACKS)), "connect", "servers")


def _group(item: pytest.Item) -> str:
    """Return the group of a test: of the shared stack, of a Spark Connect server, of single servers, or of its file."""
    fixtures: Sequence[str] = getattr(item, "fixturenames", ())
    if "stack_directory" in fixtures:
        return "stack"
    if "spark_connect" in fixtures:
        return "connect"
    is_of_servers = "broker" in fixtures or item.path.parent.name == "contract"
    return "servers" if is_of_servers and item.get_closest_marker("stack") else item.path.stem


def pytest_exception_interact(call: pytest.CallInfo[Any]) -> None:
    """Close Py4J's connection after an interrupted test, or the next test would read the answer to its last request."""
    cut_off = call.excinfo is not None and not isinstance(call.excinfo.value, Exception)
    gateway = SparkContext._gateway
    connection = gateway._gateway_client.get_thread_connection() if cut_off and gateway is not None else None
    if connection is not None:
        connection.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let every test of the shared session run on classic Spark or on Spark Connect."""
    parser.addoption("--spark-connect", action="store_true", help="the shared Spark session is a client of a server")


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Return the session of all tests; each lake adds its own catalog to it."""
    over_connect = request.config.getoption("--spark-connect")
    session: SparkSession = request.getfixturevalue("connect_session" if over_connect else "classic_session")
    yield session
    session.stop()


@pytest.fixture
def jvm(request: pytest.FixtureRequest) -> None:
    """Skip tests that use Java classes of Iceberg, or ask Spark which jobs run: no client of Spark Connect can."""
    if request.config.getoption("--spark-connect"):
        pytest.skip("uses the Java side of the session: classic Spark only")


@pytest.fixture(scope="session")
def classic_session(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """Start Spark in this process."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = {"spark.sql.shuffle.partitions": "2", **INTERPRETED}
    settings = session_settings(tmp_path_factory.mktemp("session"), conf)
    builder = SparkSession.builder.master(settings.spark_master).appName("lakehold-tests")
    for name, value in session_conf(settings).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@pytest.fixture
def generated_code(spark: SparkSession) -> Iterator[None]:
    """Let the shared session compile code for its plans, as every other session does."""
    before = {name: str(spark.conf.get(name)) for name in INTERPRETED}
    for name in INTERPRETED:
        spark.conf.unset(name)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="session")
def connect_session(spark_connect: str) -> SparkSession:
    """Return a session on a Spark Connect server."""
    return SparkSession.builder.remote(spark_connect).getOrCreate()


@pytest.fixture(autouse=True)
def shared_session_first(request: pytest.FixtureRequest) -> None:
    """Start the shared session before a test that may start one of its own: a process keeps the jars of its first session."""
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark")


@pytest.fixture
def time_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the process the time zone of the test's parameter, in which PySpark shows a TIMESTAMP."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.fixture
def make_lake(spark: SparkSession, tmp_path: Path) -> Iterator[LakeFactory]:
    """Open lakes over the shared session, each with its own catalog; settings are passed as arguments."""
    opened: list[Lake] = []
    catalogs: set[str] = set()

    def make(warehouse: Path | str | None = None, **settings: Any) -> Lake:
        name = f"lake{next(_names)}"
        catalogs.add(name)
        lake = connect(str(warehouse or tmp_path / name), spark=spark, **{"catalog_name": name, **settings})
        opened.append(lake)
        return lake

    yield make
    for lake in opened:
        lake.close()
    # Every further session is given all settings of this one: the catalogs of hundreds of tests would take it a second.
    for name in spark.conf.getAll:
        if name.startswith("spark.sql.catalog.") and name.split(".")[3] in catalogs:
            spark.conf.unset(name)


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    """Return an empty lake."""
    return make_lake()
