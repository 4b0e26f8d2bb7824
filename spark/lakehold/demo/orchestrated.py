"""The shop under Airflow: PostgreSQL changes, and DAGs bring every change into tables and into a subscription's output."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from lakehold.demo.airflow_servers import AirflowServer, Installation, servers
from lakehold.demo.database import ShopDatabase, open_shop
from lakehold.demo.demo_steps import define, lake_settings
from lakehold.demo.live import ingest, running_stack, stopped_by_signals, trade
from lakehold.demo.screen import Screen
from lakehold.demo.shop_rows import SHOP_TABLES
from lakehold.demo.workload import Workload
from lakehold.errors import EnvironmentMissing
from lakehold.lake import Lake
from lakehold.orchestration.pools import BACKFILLS, WRITERS
from lakehold.servers import lifecycle
from lakehold.servers.ports import refuse_ports_in_use
from lakehold.settings import Settings
from lakehold.spark_server import lifecycle as spark_lifecycle
from lakehold.spark_server.composition import SparkConnectServer

_CUSTOMERS = 80
_TRANSACTIONS_PER_S = 1
_SUBSCRIPTION = """
CREATE SUBSCRIPTION order_changes INTO bi.order_changes AS SUBSCRIBE shop.orders ENVELOPE UPSERT (KEY (id));
CREATE HOLD opening_day ON shop.orders, shop.order_items WITH (CHECK = 'record');
"""


def run_orchestrated(screen: Screen, place: Path, dags: Path, *, airflow_port: int, spark_port: int) -> None:
    """Open a shop, a Spark and an Airflow until Ctrl-C, then stop them all.

    Args:
        screen: Shows what happens.
        place: Directory in which the lake and Airflow's home are created. They stay.
        dags: Directory of the DAG files.
        airflow_port: Port of the UI.
        spark_port: Port of the Spark Connect server.

    Raises:
        EnvironmentMissing: The DAG files do not exist.
        LakeholdError: A server does not start, or its port is taken.
    """
    if not (dags / "ingest.py").is_file():
        raise EnvironmentMissing(
            "the DAG files were not found", detail=f"Expected them in {dags}.", hint="Run it in a checkout of lakehold."
        )
    # SIGTERM, as from a service manager, ends it as Ctrl-C does: the servers that it started are stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    name = f"shop_{uuid.uuid4().hex[:8]}"
    # Neither contracts nor suites: by default they come from folders of the working directory.
    spark_remote = SparkConnectServer(place / "spark", spark_port).remote
    settings = lake_settings(place / "lake", schemas="", expectations="", spark_remote=spark_remote)
    lake_variables = {
        "LAKEHOLD_WAREHOUSE": settings.warehouse,
        "LAKEHOLD_CATALOG_URI": settings.catalog_uri,
        "LAKEHOLD_CATALOG_NAME": settings.catalog_name,
        "LAKEHOLD_CATALOG_PROPERTIES": "{}",
        "LAKEHOLD_SCHEMAS": "",
        "LAKEHOLD_EXPECTATIONS": "",
        # Not lakehold.toml of the working directory, whose catalog properties would be added.
        "LAKEHOLD_CONFIG": str(_empty_file(place / "lakehold.toml")),
    }
    airflow = Installation(place / "airflow-home", airflow_port, dags, spark_remote, lake_variables)
    parts = servers(place / "airflow", airflow)
    refuse_ports_in_use(parts)
    workload = Workload(seed=int(time.time()), clock=lambda: datetime.now(UTC))
    screen.heading("airflow, and lakehold spark up")
    with (
        ThreadPoolExecutor(max_workers=2) as threads,
        _starting_airflow(screen, airflow, parts, threads) as airflow_started,
        _starting_spark(screen, place / "spark", settings, spark_port, threads) as spark_started,
        running_stack(screen) as addresses,
        open_shop(addresses, name, name, workload.opening(_CUSTOMERS)) as shop,
    ):
        screen.line(f"PostgreSQL has a shop: {addresses.postgres(name)}")
        shop.capture("avro")
        with Lake(settings) as lake:
            kafka, registry = addresses.kafka, addresses.registry
            define(screen, lake, place / "shop.sql", "shop.live.sql", kafka=kafka, registry=registry, prefix=name)
            spark_started.result()
            _first_rows(screen, lake)
        airflow_started.result()
        with _running_dags(screen, airflow, parts[-1]):
            _trade_until_stopped(screen, airflow, shop, workload)


def _empty_file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def _first_rows(screen: Screen, lake: Lake) -> None:
    """Ingest until there are tables to subscribe to."""
    screen.heading("lakehold ingest shop")
    tables = [f"shop.{table.name}" for table in SHOP_TABLES]
    while len(lake.timelines.readable(tables)) < len(tables):
        ingest(screen, lake)
    screen.heading("lakehold sql")
    screen.sql(_SUBSCRIPTION)
    lake.sql(_SUBSCRIPTION)


@contextmanager
def _starting_spark(
    screen: Screen, directory: Path, settings: Settings, port: int, threads: ThreadPoolExecutor
) -> Iterator[Future[str]]:
    started = threads.submit(spark_lifecycle.up, directory, settings, port, screen.stack_event)
    try:
        yield started
    finally:
        wait([started])
        screen.heading("lakehold spark down")
        spark_lifecycle.down(directory, screen.stack_event)


@contextmanager
def _starting_airflow(
    screen: Screen, airflow: Installation, parts: Sequence[AirflowServer], threads: ThreadPoolExecutor
) -> Iterator[Future[None]]:
    given_up = Event()

    def start() -> None:
        screen.line("making Airflow's database")
        airflow.migrate()
        lifecycle.start_together(parts, given_up, screen.stack_event)

    started = threads.submit(start)
    try:
        yield started
    finally:
        given_up.set()
        wait([started])
        screen.heading("stopping airflow")
        for server in reversed(parts):
            lifecycle.stop(server, screen.stack_event)


@contextmanager
def _running_dags(screen: Screen, airflow: Installation, scheduler: AirflowServer) -> Iterator[None]:
    """Let the DAGs run, and stop the scheduler first at the end: tasks end before the systems that they need."""
    for pool in (WRITERS, BACKFILLS):
        airflow.make_pool(pool, slots=1)
    airflow.run_dags()
    try:
        yield
    finally:
        lifecycle.stop(scheduler, screen.stack_event)


def _trade_until_stopped(screen: Screen, airflow: Installation, shop: ShopDatabase, workload: Workload) -> None:
    screen.heading(f"Airflow is at {airflow.url}")
    screen.line("PostgreSQL changes once a second. Every minute lakehold_ingest brings the changes into shop.*,")
    screen.line("and lakehold_subscriptions appends those of shop.orders to bi.order_changes. Ctrl-C ends it.")
    with stopped_by_signals() as stop:
        count = trade(shop, workload.transactions(), stop, _TRANSACTIONS_PER_S)
    screen.line(f"PostgreSQL ran {count} transactions")
