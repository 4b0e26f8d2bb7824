"""Measures the comparison of a captured table with its database, against one read of each side."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from lakehold import stack as lakehold_stack
from lakehold.lake import Lake
from tests.benchmarks.figures import Figure, seconds
from tests.captured_shop import Shop
from tests.live_source import execute
from tests.stack_fixtures import SourceDatabase, free_ports, open_directory

_GOAL = 2.0
_COLUMNS = "id bigint, n int, v text, paid numeric(12, 2), at timestamp"
_IN_POSTGRES = "i, i % 97, 'value ' || i, i % 1000000 / 100.0, timestamp '2026-01-01' + i * interval '1 second'"
_IN_LAKE = (
    "id AS id",
    "int(id % 97) AS n",
    "concat('value ', id) AS v",
    "CAST(id % 1000000 / 100 AS DECIMAL(12, 2)) AS paid",
    "timestampadd(SECOND, id, TIMESTAMP_NTZ'2026-01-01 00:00:00') AS at",
)


def equal_rows(lake: Lake, rows: int, runs: int) -> list[Figure]:
    """Compare `rows` equal rows; the floor is an ordered scan by PostgreSQL, read by a client, and a scan by Spark."""
    with open_directory() as name:
        addresses = lakehold_stack.up(Path(name), free_ports())
        os.environ["LAKEHOLD_SECRET_PG"] = addresses.postgres_password
        try:
            return _measured(lake, SourceDatabase(addresses), rows, runs)
        finally:
            lakehold_stack.down(Path(name), delete_data=True)


def _measured(lake: Lake, database: SourceDatabase, rows: int, runs: int) -> list[Figure]:
    def opened(*_: Any, **__: Any) -> Lake:
        return lake

    shop = Shop(opened, database)
    _load(shop, rows)
    took: list[float] = []
    floors: list[float] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(runs):
        took.append(seconds(lambda: _verified(lake, rows)))
        floors.append(seconds(_scans(shop)))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    print(f"the process has grown by {grown} MiB")
    shop.close()
    return [
        Figure(
            f"verify of {rows:,} equal rows",
            "s",
            tuple(took),
            "one ordered scan by PostgreSQL and one scan by Spark",
            tuple(floors),
            _GOAL,
        )
    ]


def _load(shop: Shop, rows: int) -> None:
    """Capture a table of one row, and give both sides the others: to send them all would take Debezium half an hour.

    PostgreSQL logs no rows of a partition that becomes one of the table. lakehold would notice and have them sent; so the
    catalogue is made to say that the partition was created as one, by writing the records of all its columns again at once.
    """
    execute(
        shop.database,
        [
            f"CREATE TABLE orders ({_COLUMNS}, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
            "CREATE TABLE first PARTITION OF orders FOR VALUES FROM (0) TO (1)",
            f"INSERT INTO orders SELECT {_IN_POSTGRES} FROM generate_series(0, 0) i",
            f"CREATE TABLE others ({_COLUMNS}, PRIMARY KEY (id))",
            f"INSERT INTO others SELECT {_IN_POSTGRES} FROM generate_series(1, {rows - 1}) i",
        ],
    )
    shop.lake.sql(Shop.creating("orders", "DEBEZIUM UPSERT"))
    shop.follow_until_readable("orders")
    execute(
        shop.database,
        [
            f"ALTER TABLE orders ATTACH PARTITION others FOR VALUES FROM (1) TO ({rows})",
            "SET allow_system_table_mods = on",
            "UPDATE pg_attribute SET attname = attname WHERE attrelid = 'others'::regclass",
        ],
    )
    execute(shop.database, ["ANALYZE orders"])
    shop.lake.spark.range(1, rows).selectExpr(*_IN_LAKE).writeTo(_in_lake(shop.lake)).append()


def _verified(lake: Lake, rows: int) -> None:
    found = lake.verify("shop.orders")
    assert found.is_equal, found.differences[:5]
    assert found.rows_in_lake == found.rows_in_database == rows


def _scans(shop: Shop) -> Callable[[], None]:
    def scan() -> None:
        query = b"COPY (SELECT * FROM orders ORDER BY id) TO STDOUT (FORMAT csv)"
        uri = shop.database.addresses.postgres(shop.database.name)
        with psycopg.connect(uri) as connection, connection.cursor() as cursor, cursor.copy(query) as copy:
            for _ in copy:
                pass
        shop.lake.spark.table(_in_lake(shop.lake)).write.format("noop").mode("overwrite").save()

    return scan


def _in_lake(lake: Lake) -> str:
    return f"{lake.settings.catalog_name}.shop.orders"
