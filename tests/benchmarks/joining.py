"""The rate of changes of a captured table while the connector reads the rows of a joining one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import psycopg

from lakehold import stack as lakehold_stack
from lakehold.lake import Lake
from tests.benchmarks.figures import Figure
from tests.captured_shop import Shop
from tests.stack_fixtures import SourceDatabase, free_ports, open_directory
from tests.waiting import wait_for

_CHANGES_PER_S = 800
_IDS = 1_000
_BEFORE_S = 10.0
_READ_WITHIN_S = 600.0
_SCANNED = "TABLE_SCAN_COMPLETED"
_GOAL = 0.9


def changes_meanwhile(lake: Lake, rows: int, runs: int) -> list[Figure]:
    """Measure the rate at which a steady load of `orders` reaches Kafka, while `rows` rows of `items` are read."""
    with open_directory() as name:
        addresses = lakehold_stack.up(Path(name), free_ports())
        os.environ["LAKEHOLD_SECRET_PG"] = addresses.postgres_password
        try:
            measured = [_measured(lake, SourceDatabase(addresses), rows) for _ in range(runs)]
        finally:
            lakehold_stack.down(Path(name), delete_data=True)
    before, during = zip(*measured, strict=True)
    measuring = f"changes of a captured table while {rows:,} rows of one that joins are read"
    return [Figure(measuring, "records/s", during, "just before it joins", before, _GOAL)]


def _measured(lake: Lake, database: SourceDatabase, rows: int) -> tuple[float, float]:
    """Measure changes a second before the table joins, and in the second half of the time in which its rows are sent.

    The first half has the changes that were delayed while the connector restarted.
    """

    def opened(*_: Any, **__: Any) -> Lake:
        return lake

    shop = Shop(opened, database)
    shop.upstream("orders", rows=_IDS)
    shop.upstream("items", rows=rows)
    shop.lake.sql(shop.creating("orders", "DEBEZIUM UPSERT"))
    shop.wait_for_events("orders", {"r": _IDS})
    scans = shop.connector.notifications().count(_SCANNED)
    with _changing(database):
        time.sleep(2 * _BEFORE_S)
        joins_ms = time.time() * 1000
        shop.lake.sql(shop.creating("items", "DEBEZIUM UPSERT"))
        wait_for(
            lambda: shop.connector.notifications().count(_SCANNED) > scans, "all rows are sent", within_s=_READ_WITHIN_S
        )
    read_ms = shop.sent_ms("items")
    half_ms = (read_ms[0] + read_ms[-1]) / 2
    changes_ms = shop.sent_ms("orders")
    shop.close()
    lake.sql("; ".join(f"DROP CONNECTION {name}" for name in ("kafka", "registry", "pg", "connect")))
    database.drop()
    return _rate(changes_ms, joins_ms - _BEFORE_S * 1000, joins_ms), _rate(changes_ms, half_ms, read_ms[-1])


def _rate(sent_ms: Sequence[int], from_ms: float, until_ms: float) -> float:
    """Count the messages a second in [from_ms, until_ms)."""
    return sum(from_ms <= each < until_ms for each in sent_ms) / (until_ms - from_ms) * 1000


@contextmanager
def _changing(database: SourceDatabase) -> Iterator[None]:
    """Change rows of `orders` at a steady pace, a transaction each."""
    is_over = Event()

    def change() -> None:
        with psycopg.connect(database.addresses.postgres(database.name), autocommit=True) as connection:
            began_s, done = time.monotonic(), 0
            while not is_over.wait(max(0.0, began_s + done / _CHANGES_PER_S - time.monotonic())):
                connection.execute("UPDATE orders SET n = n + 1 WHERE id = %s", (done % _IDS + 1,))
                done += 1

    with ThreadPoolExecutor(1) as threads:
        changing = threads.submit(change)
        try:
            yield
        finally:
            is_over.set()
            changing.result()
