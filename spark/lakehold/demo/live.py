"""A live shop: PostgreSQL changes while Debezium, Kafka and lakehold bring every change into the lake's tables."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from types import FrameType

from lakehold import stack
from lakehold.demo.database import ShopDatabase, open_shop, run
from lakehold.demo.demo_steps import compare, define, finish, lake_settings, query_tables, rows_of, subscribe
from lakehold.demo.screen import Screen
from lakehold.demo.shop_rows import SHOP_TABLES
from lakehold.demo.workload import Transaction, Workload
from lakehold.lake import Lake
from lakehold.servers.server_directory import default_directory
from lakehold.stack import StackAddresses
from lakehold.times import now_ms

_CUSTOMERS = 80
_TRANSACTIONS_PER_S = 10
_IDLE_S = 0.5
_ARRIVES_WITHIN_S = 60.0

_NEWEST_CHANGE = "SELECT unix_millis(max(changed_at)) FROM shop.orders"


def run_live(screen: Screen, place: Path, seconds: int) -> None:
    """Open a shop for some seconds or until Ctrl-C, follow it, and compare the lake with it at the end.

    A stack that ran before keeps running; a stack that the demo started is stopped, whatever happens, by the last demo.

    Raises:
        LakeholdError: A part of the stack or a table stopped, or a table differs from PostgreSQL.
    """
    # SIGTERM, as from a service manager, ends the demo as Ctrl-C does: the servers that it started are stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    name = f"shop_{uuid.uuid4().hex[:8]}"
    workload = Workload(
        seed=int(time.time()), clock=lambda: datetime.now(UTC), alter_after=seconds * _TRANSACTIONS_PER_S // 2
    )
    with running_stack(screen) as addresses, open_shop(addresses, name, name, workload.opening(_CUSTOMERS)) as shop:
        screen.line(f"PostgreSQL has a shop: {addresses.postgres(name)}")
        shop.capture("avro")
        # The tables follow the shop's own schema, whatever lies in the working directory.
        with Lake(lake_settings(place / name, schemas="")) as lake:
            kafka, registry = addresses.kafka, addresses.registry
            define(screen, lake, place / f"{name}.sql", "shop.live.sql", kafka=kafka, registry=registry, prefix=name)
            with screen.waiting("starting Spark"):
                _ = lake.spark
            with stopped_by_signals() as stop:
                _follow(screen, lake, shop, workload.transactions(), seconds, stop)
            _drain(screen, lake, shop)
            query_tables(screen, lake)
            compare(screen, lake, {table: shop.rows(table) for table in SHOP_TABLES})
            subscribe(screen, lake)
            finish(screen, lake)


@contextmanager
def running_stack(screen: Screen) -> Iterator[StackAddresses]:
    """Start the stack unless it runs; at the end stop it if a demo started it and no other demo uses it."""
    directory = default_directory("stack", "LAKEHOLD_STACK_DIR")
    screen.heading("lakehold stack up")
    with stack.shared(directory, screen.stack_event, lambda: screen.heading("lakehold stack down")) as addresses:
        yield addresses


@contextmanager
def stopped_by_signals() -> Iterator[Event]:
    """Yield an event that Ctrl-C or SIGTERM sets. Replaces the handlers that Spark installed with its session."""
    stop = Event()

    def stopping(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, stopping) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _follow(  # noqa: PLR0913 - who changes what, who follows, and for how long
    screen: Screen, lake: Lake, shop: ShopDatabase, transactions: Iterator[Transaction], seconds: int, stop: Event
) -> None:
    """Ingest what arrives while the shop is open."""
    screen.heading(f"lakehold ingest shop --follow, while PostgreSQL changes for {seconds} s (Ctrl-C ends it earlier)")
    closed = Event()
    deadline_s = time.monotonic() + seconds
    with ThreadPoolExecutor(max_workers=1) as threads:
        load = threads.submit(trade, shop, transactions, closed, _TRANSACTIONS_PER_S)
        try:
            while time.monotonic() < deadline_s and not stop.is_set() and not load.done():
                if not ingest(screen, lake):
                    stop.wait(_IDLE_S)
        finally:
            closed.set()
        screen.line(f"PostgreSQL ran {load.result()} transactions")


def trade(shop: ShopDatabase, transactions: Iterator[Transaction], closed: Event, per_s: int) -> int:
    """Change the database `per_s` times a second until the shop is closed; returns the number of transactions."""
    count = 0
    with shop.connect() as connection:
        while not closed.wait(1 / per_s):
            run(connection, next(transactions))
            count += 1
    return count


def ingest(screen: Screen, lake: Lake) -> bool:
    """Ingest once, and show what changed and how far the lake is behind the shop.

    Returns:
        Whether anything had arrived.
    """
    arrived = False
    for report in lake.batches_of("shop"):
        screen.batch(report)
        for error in report.stopped.values():
            raise error
        arrived = arrived or report.records > 0
    if arrived:
        newest_ms = lake.sql(_NEWEST_CHANGE).rows[0][0]
        screen.line(f"the lake is {(now_ms() - newest_ms) / 1000:.1f} s behind the shop", style="dim")
    return arrived


def _drain(screen: Screen, lake: Lake, shop: ShopDatabase) -> None:
    """Ingest until everything has arrived, or until nothing arrives for too long."""
    screen.heading("the shop is closed; the rest arrives")
    deadline_s = time.monotonic() + _ARRIVES_WITHIN_S
    while time.monotonic() < deadline_s:
        if ingest(screen, lake):
            deadline_s = time.monotonic() + _ARRIVES_WITHIN_S
        if all(rows_of(lake, table) == shop.rows(table) for table in SHOP_TABLES):
            return
