"""Mirrors a table of the lake into a file of DuckDB, exactly once: `python duckdb_mirror.py`.

Each run applies what changed since the last one. A run that is killed loses and repeats nothing: the transaction that applies a
timestamp also stores it. Replace the statement, the names and the types.
"""

from __future__ import annotations

import duckdb

import lakehold
from lakehold.publish.deliveries import Delivery

ORDERS = "SUBSCRIBE (SELECT id, status, total FROM shop.orders) ENVELOPE UPSERT (KEY (id))"


def main() -> None:
    with lakehold.connect() as lake, duckdb.connect("orders.duckdb") as mirror:
        mirror.execute("CREATE TABLE IF NOT EXISTS applied (timestamp BIGINT)")
        mirror.execute("CREATE TABLE IF NOT EXISTS orders (id BIGINT, status VARCHAR, total DECIMAL(18, 2))")
        client = lake.durable("duckdb_mirror", ORDERS, on_lapse="resnapshot", max_lag_ms=7 * 86_400_000)
        for delivery in client.deliveries():
            is_new = mirror.sql("FROM applied WHERE timestamp >= $1", params=[delivery.timestamp]).fetchone() is None
            if is_new:
                apply(mirror, delivery)
            delivery.acknowledge()
            print(delivery.timestamp, "applied" if is_new else "was applied before")


def apply(mirror: duckdb.DuckDBPyConnection, delivery: Delivery) -> None:
    mirror.begin()
    if delivery.is_snapshot:  # the first time, and if no run came for `max_lag_ms`
        mirror.execute("DELETE FROM orders")
    for table in delivery.tables():
        mirror.register("changes", table)
        mirror.execute("DELETE FROM orders WHERE id IN (SELECT id FROM changes)")
        mirror.execute("INSERT INTO orders SELECT id, status, total FROM changes WHERE mz_state = 'upsert'")
    mirror.execute("DELETE FROM applied")
    mirror.execute("INSERT INTO applied VALUES ($1)", [delivery.timestamp])
    mirror.commit()


if __name__ == "__main__":
    main()
