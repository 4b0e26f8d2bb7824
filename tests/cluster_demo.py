"""`make demo-cluster`: a captured shop on a Spark cluster, of which parts are killed while the shop changes.

PostgreSQL is captured through Debezium and Kafka. The lake's files are in an S3 store, its catalog in PostgreSQL. A standalone
Spark master has two workers, and a Spark Connect server runs on them. `lakehold ingest --follow` is a client of that server.
While a batch is merged, first a worker is killed with its executor, then the Connect server. In the end `lakehold verify`
compares every row of the lake with the database.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import psycopg

from lakehold.demo.database import ShopDatabase, open_shop
from lakehold.demo.live import running_stack, trade
from lakehold.demo.screen import Screen
from lakehold.demo.workload import Workload
from lakehold.servers import HOST
from lakehold.settings import ENVIRONMENT_PREFIX
from lakehold.spark_server import lifecycle as spark_server
from lakehold.stack import StackAddresses
from tests.catalog_servers import running
from tests.s3_server import CREDENTIALS, S3Server
from tests.spark_cluster import Cluster, DriverPage, Worker, running_cluster
from tests.spark_connect import free_port
from tests.waiting import wait_for

_COMMAND = str(Path(sys.executable).with_name("lakehold"))
_ROWS = 40_000
_CUSTOMERS = 80
_TRANSACTIONS_PER_S = 3
_NEVER = sys.maxsize
_BUCKET = "lake"
_TABLES = ("customers", "orders", "order_items", "prices")
_WITHIN_S = 600.0

_PRICES = """
CREATE TABLE prices (id int PRIMARY KEY, article text NOT NULL, price numeric(10, 2) NOT NULL);
ALTER TABLE prices REPLICA IDENTITY FULL;
INSERT INTO prices SELECT i, 'article ' || i, i % 100 + 0.5 FROM generate_series(1, {rows}) i
"""
_SALE = "UPDATE prices SET price = round(price * 0.9, 2)"
"""Changes all rows of a table in one transaction, which a batch takes whole."""

_DEFINITIONS = """
CREATE CONNECTION pg TO POSTGRES (HOST '{pg.postgres_host}', PORT {pg.postgres_port}, USER '{pg.postgres_user}',
  PASSWORD SECRET 'pg', DATABASE '{name}');
CREATE CONNECTION connect TO CONNECT (URL '{pg.connect}', AVRO CONVERTER 'apicurio', REGISTRY URL '{pg.registry_native}');
CREATE CONNECTION kafka TO KAFKA (BROKER '{pg.kafka}');
CREATE CONNECTION registry TO SCHEMA REGISTRY (URL '{pg.registry}');
CREATE SOURCE shop FROM POSTGRES CONNECTION pg (PUBLICATION 'lake', SLOT '{name}')
  VIA CONNECT CONNECTION connect INTO KAFKA CONNECTION kafka (TOPIC PREFIX '{name}')
  FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry;
BEGIN;
CREATE TABLE shop.customers FROM SOURCE shop (TABLE 'public.customers') ENVELOPE DEBEZIUM;
CREATE TABLE shop.orders FROM SOURCE shop (TABLE 'public.orders') ENVELOPE DEBEZIUM;
CREATE TABLE shop.order_items FROM SOURCE shop (TABLE 'public.order_items') ENVELOPE DEBEZIUM;
CREATE TABLE shop.prices FROM SOURCE shop (TABLE 'public.prices') ENVELOPE DEBEZIUM;
COMMIT
"""


def main() -> None:
    """Run the demo on the stack of this machine, which is started unless it runs."""
    screen = Screen(sys.stdout)
    # SIGTERM ends it as Ctrl-C does: the servers that it started are stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="lakehold-cluster-") as place, running_stack(screen) as addresses:
        run(screen, Path(place), addresses)


def run(screen: Screen, place: Path, addresses: StackAddresses) -> None:
    """Start the servers, and let the shop change while parts are killed.

    Args:
        screen: Shows what happens.
        place: A directory for the servers' files.
        addresses: The running stack.
    """
    name = f"cluster_{uuid.uuid4().hex[:8]}"
    workload = Workload(seed=int(time.time()), clock=lambda: datetime.now(UTC), alter_after=_NEVER)
    with ExitStack() as ended:
        screen.heading("an S3 store, a database for the catalog, a Spark master and two workers")
        store = ended.enter_context(running(S3Server(place / "s3")))
        store.new_bucket(_BUCKET)
        catalog = ended.enter_context(_database(addresses, f"catalog_{name}"))
        cluster = ended.enter_context(running_cluster(place / "cluster"))
        screen.line(f"{cluster.master.url} has {cluster.master.workers()} workers")
        lake = ClusterLake(screen, place, cluster, _settings(place, addresses, store, catalog), free_port())
        ended.callback(lake.command, "spark", "down")
        lake.command("spark", "up", "--port", lake.port)
        shop = ended.enter_context(open_shop(addresses, name, name, workload.opening(_CUSTOMERS)))
        with shop.connect() as connection:
            connection.execute(_PRICES.format(rows=_ROWS).encode())
        lake.command("sql", _DEFINITIONS.format(pg=addresses, name=name))
        ended.callback(lake.command, "sql", "DROP SOURCE shop CASCADE")
        with _trading(screen, shop, workload), lake.following() as follow:
            follow.wait_for("inserted", _ROWS)
            _kill_a_worker(screen, lake, shop)
            follow.wait_for("updated", _ROWS)
            screen.line(f"tasks that were lost and ran again: {lake.driver_page.failed_tasks()}")
            _kill_the_server(screen, lake, shop)
            follow.wait_for("updated", 2 * _ROWS)
        screen.heading("the shop is closed")
        lake.command("verify", *(f"shop.{table}" for table in _TABLES), "--format", "table")
        screen.line("every row of the lake is equal to PostgreSQL's")


def _kill_a_worker(screen: Screen, lake: ClusterLake, shop: ShopDatabase) -> None:
    screen.heading("a sale changes all prices, and a worker is killed while they are merged")
    _run_sale(screen, shop)
    worker, executor = lake.wait_until_merging()
    worker.kill()
    screen.line(f"kill -9: {worker.name}, and its executor {executor}")


def _kill_the_server(screen: Screen, lake: ClusterLake, shop: ShopDatabase) -> None:
    screen.heading("another sale, and the Connect server is killed while its prices are merged")
    _run_sale(screen, shop)
    lake.wait_until_merging()
    lake.kill_server()
    screen.line("kill -9: the Spark Connect server")
    lake.command("spark", "up", "--port", lake.port)


def _run_sale(screen: Screen, shop: ShopDatabase) -> None:
    with shop.connect() as connection:
        changed = connection.execute(_SALE).rowcount
    screen.line(f"rows changed in one transaction: {changed}")


@contextmanager
def _trading(screen: Screen, shop: ShopDatabase, workload: Workload) -> Iterator[None]:
    """Change the shop until the block ends."""
    closed = Event()
    with ThreadPoolExecutor(max_workers=1) as threads:
        trading = threads.submit(trade, shop, workload.transactions(), closed, _TRANSACTIONS_PER_S)
        try:
            yield
        finally:
            closed.set()
        screen.line(f"meanwhile PostgreSQL ran {trading.result()} other transactions")


@contextmanager
def _database(addresses: StackAddresses, name: str) -> Iterator[str]:
    """Make a database for the lake's catalog, and drop it afterwards; yields its address."""
    with psycopg.connect(addresses.postgres(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield addresses.postgres(name).replace("postgresql:", "postgresql+psycopg2:")
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _settings(place: Path, addresses: StackAddresses, store: S3Server, catalog: str) -> dict[str, str]:
    """Return the settings of the lake that do not depend on the cluster."""
    return {
        "warehouse": f"s3://{_BUCKET}/shop",
        "catalog_uri": catalog,
        "catalog_properties": json.dumps({"s3.endpoint": store.endpoint, **CREDENTIALS}),
        "schemas": "",
        "secret_pg": addresses.postgres_password,
        # Executors read all but the smallest batches.
        "driver_read_max_records": "1000",
        "spark_dir": str(place / "spark"),
        "spark_driver_memory": "1g",
    }


@dataclass(frozen=True)
class ClusterLake:
    """The lake, whose commands are clients of a Spark Connect server on the cluster.

    Args:
        screen: Shows the commands and what they print.
        place: The directory for files.
        cluster: Runs the server's executors.
        settings: The settings of the lake.
        port: The server's port.
    """

    screen: Screen
    place: Path
    cluster: Cluster
    settings: dict[str, str]
    port: int
    driver_page: DriverPage = field(default_factory=lambda: DriverPage(free_port()))

    @property
    def environment(self) -> dict[str, str]:
        """Return the settings of the lake and of the server as variables."""
        values = {
            **self.settings,
            "spark_master": self.cluster.master.url,
            "spark_conf": json.dumps(self.cluster.spark_conf(self.driver_page.port)),
            "spark_remote": f"sc://{HOST}:{self.port}",
        }
        return {**os.environ, **{f"{ENVIRONMENT_PREFIX}{name.upper()}": value for name, value in values.items()}}

    def command(self, *arguments: object) -> None:
        """Run a command of lakehold, which must succeed."""
        words = [_COMMAND, *map(str, arguments)]
        self.screen.heading(f"lakehold {' '.join(words[1:])}")
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=_WITHIN_S, check=False
        )
        self.screen.line(f"{done.stdout}{done.stderr}".strip())
        if done.returncode:
            raise SystemExit(f"it ended with {done.returncode}")

    def wait_until_merging(self) -> tuple[Worker, str]:
        """Wait until an executor merges prices; returns its worker and its id."""
        found: list[tuple[Worker, str]] = []

        def is_merging() -> bool:
            if busy := self.driver_page.merging_executors("prices"):
                found.extend((w, e) for w in self.cluster.workers for e in w.executors() if e in busy)
            return bool(found)

        wait_for(is_merging, "an executor merges", within_s=_WITHIN_S)
        return found[0]

    def kill_server(self) -> None:
        """Kill the Connect server, which is Spark's driver, with SIGKILL."""
        directory = Path(self.settings["spark_dir"])
        pid = spark_server.status(directory).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: spark_server.status(directory).pid is None, "the server is gone")

    @contextmanager
    def following(self) -> Iterator[Follow]:
        """Run `lakehold ingest --follow` until the block ends."""
        rows, log = self.place / "ingest.jsonl", self.place / "ingest.log"
        words = [_COMMAND, "ingest", "shop", "--follow", "--quiet", "--format", "json"]
        self.screen.heading("lakehold ingest shop --follow")
        with rows.open("w") as stdout, log.open("w") as stderr:
            process = subprocess.Popen(words, env=self.environment, stdout=stdout, stderr=stderr)
        try:
            yield Follow(self.screen, process, rows, log)
        finally:
            process.terminate()
            process.wait(_WITHIN_S)
            self.screen.line(log.read_text().strip())


@dataclass(frozen=True)
class Follow:
    """A running `lakehold ingest --follow`.

    Args:
        screen: Shows how far it is.
        process: The process.
        rows: Its output.
        log: Its messages.
    """

    screen: Screen
    process: subprocess.Popen[bytes]
    rows: Path
    log: Path

    def wait_for(self, what: str, count: int) -> None:
        """Wait until so many prices were `inserted` or `updated`."""

        def is_there() -> bool:
            if self.process.poll() is not None:
                raise SystemExit(f"lakehold ingest ended with {self.process.returncode}: {self.log.read_text()}")
            return self._total(what) >= count

        wait_for(is_there, f"{count} rows {what}", within_s=_WITHIN_S)
        self.screen.line(f"shop.prices: {self._total(what)} rows {what} so far")

    def _total(self, what: str) -> int:
        batches = (json.loads(line) for line in self.rows.read_text().splitlines(keepends=True) if line.endswith("\n"))
        return sum(batch[what] for batch in batches if batch["table"] == "shop.prices")


if __name__ == "__main__":
    main()
