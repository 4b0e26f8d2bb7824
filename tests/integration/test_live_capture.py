"""Statements alone capture a database, and the lake equals the database, whatever happens upstream."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import psycopg
import pytest

from lakehold import stack as lakehold_stack
from lakehold.errors import LakeholdError
from lakehold.stack import ConnectClient
from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.conftest import LakeFactory
from tests.connect_worker import worker_without_transactions
from tests.live_connector import kill_connect
from tests.live_source import execute
from tests.stack_fixtures import SourceDatabase
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_COMMAND = str(Path(sys.executable).with_name("lakehold"))


def test_tables_share_a_connector_and_a_joining_one_is_snapshotted_alone(shop: Shop) -> None:
    shop.upstream("customers", "orders", "items")
    assert shop.steps(shop.creating("orders")) == [
        "declare table shop.orders",
        "create topic shop.signal with 1 partition",
        "create topic shop.notification with 1 partition",
        "create topic __debezium-heartbeat.shop with 1 partition",
        "create topic shop.transaction with 1 partition",
        "create topic shop.public.orders with 1 partition",
        "create publication lake for public.orders",
        "record that public.orders is in publication lake",
        "create table lakehold_signals.of_shop in publication lake, and schema lakehold_signals unless it exists",
        "create connector shop over public.orders, with replication slot shop and publication lake",
        "first snapshot: public.orders",
        "start connector shop",
    ]
    assert shop.topics() == set(), "EXPLAIN does nothing"
    assert shop.lake.sql(f"EXPLAIN {shop.creating('orders')}").notices == ()

    shop.lake.sql(f"BEGIN; {shop.creating('orders')}; {shop.creating('customers', 'DEBEZIUM UPSERT')}; COMMIT")
    assert shop.publications() == {"lake": {"orders", "customers", f"of_{shop.database.name}"}}
    shop.follow_until_equal("orders", "customers")
    assert shop.steps("ALTER SOURCE shop REPAIR") == []

    assert shop.steps(shop.creating("items"))[1:] == [
        "create topic shop.public.items with 1 partition",
        "publication lake: add public.items",
        "record that public.items is in publication lake",
        "stop connector shop",
        r"connector shop: table.include.list from (?-i:public\.customers),(?-i:public\.orders) "
        r"to (?-i:public\.customers),(?-i:public\.items),(?-i:public\.orders)",
        "snapshot of public.items alone",
        "start connector shop",
    ]
    closed = Event()
    with ThreadPoolExecutor(1) as threads:
        trading = threads.submit(_trade, shop.database, closed)
        try:
            shop.lake.sql(shop.creating("items"))
            shop.follow_until_equal("customers")
        finally:
            closed.set()
        changes = trading.result()
    shop.follow_until_equal("orders", "customers", "items")
    wait_for(lambda: _are_readable(shop, "items"), "the table that joined is readable")
    shop.follow_until_equal("items")

    assert changes > 0
    assert shop.events("orders") == {"r": 200, "u": changes}, "orders was streamed, and not snapshotted again"
    of_items = shop.events("items")
    assert of_items.keys() <= {"ad hoc", "u"}
    assert of_items["ad hoc"] <= 200
    assert shop.slots() == 1


@pytest.mark.soak
def test_tables_that_join_together_are_readable_when_each_is_snapshotted(shop: Shop) -> None:
    shop.upstream("orders", "customers", "items", "notes", rows=2_000)
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")
    wait_for(lambda: not shop.lake.captured.snapshots("shop").awaited, "the first snapshot is complete")
    joining = ("customers", "items", "notes")
    shop.lake.sql(f"BEGIN; {'; '.join(map(shop.creating, joining))}; COMMIT")
    wait_for(lambda: _are_readable(shop, *joining), "all joined tables are readable")
    shop.follow_until_equal("orders", *joining)


def test_tables_are_readable_from_a_whole_first_snapshot_on(shop: Shop) -> None:
    rows = 30_000
    shop.upstream("a", "z", rows=rows)
    shop.lake.sql(f"BEGIN; {shop.creating('a')}; {shop.creating('z')}; COMMIT")
    wait_for(lambda: _are_readable(shop, "a", "z"), "both are readable")
    lines = shop.lake.timelines.of(["shop.a", "shop.z"])
    for name, line in lines.items():
        found = shop.lake.sql(f"SELECT count(*) FROM {name} AS OF {line.since_ms}").rows
        assert found == [(rows,)], name


def test_workers_that_do_not_write_in_kafka_transactions_are_reported(
    make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    with worker_without_transactions(database.addresses, tmp_path) as addresses:
        monkeypatch.setattr(database, "addresses", addresses)
        shop = Shop(make_lake, database)
        shop.upstream("orders")
        notices = [
            [notice for notice in shop.lake.sql(statement).notices if "exactly.once.source.support" in notice]
            for statement in (f"EXPLAIN {shop.creating('orders')}", shop.creating("orders"), "ALTER SOURCE shop REPAIR")
        ]
        shop.close()
        monkeypatch.undo()
    assert list(map(len, notices)) == [1, 1, 1]


@pytest.mark.soak
def test_other_tables_go_on_while_the_rows_of_a_joining_table_are_read(shop: Shop) -> None:
    chunks, chunk_rows, changes = 10, 1_024, 10_000
    shop.upstream("orders")
    shop.upstream("items", rows=chunks * chunk_rows)
    shop.lake.sql(shop.creating("orders", "DEBEZIUM UPSERT"))
    shop.follow_until_equal("orders")

    shop.connector.pause()
    update = "UPDATE orders SET n = n + 1 WHERE id = 1 + i % 200; COMMIT"
    with psycopg.connect(shop.database.addresses.postgres(shop.database.name), autocommit=True) as connection:
        connection.execute(f"DO $$ BEGIN FOR i IN 1..{changes} LOOP {update}; END LOOP; END $$".encode())
    shop.connector.go_on()
    shop.lake.sql(shop.creating("items", "DEBEZIUM UPSERT"))
    shop.wait_for_events("items", {"ad hoc": chunks * chunk_rows})
    shop.wait_for_events("orders", {"r": 200, "u": changes})

    last_ms = max(shop.sent_ms("orders"))
    before = sum(sent_ms <= last_ms for sent_ms in shop.sent_ms("items"))
    assert before <= 2 * chunk_rows, "the delayed changes arrive before all but the first rows"
    shop.follow_until_equal("orders", "items")
    assert shop.query("SELECT * FROM lakehold_signals.of_" + shop.database.name) == [], "no signal is left in the table"


def test_connect_is_killed_while_the_rows_of_a_joining_table_are_read(shop: Shop, stack_directory: Path) -> None:
    rows = 20_000
    shop.upstream("orders")
    shop.upstream("items", rows=rows)
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")
    shop.lake.sql(shop.creating("items", "DEBEZIUM UPSERT"))
    wait_for(lambda: 0 < shop.events("items")["ad hoc"] < rows, "some of the rows are read")
    kill_connect(stack_directory)
    execute(shop.database, ["UPDATE orders SET n = 1 WHERE id < 50", "UPDATE items SET n = 1 WHERE id % 7 = 0"])
    lakehold_stack.up(stack_directory)
    shop.follow_until_equal("orders", "items")
    shop.follow_until_readable("items")
    assert shop.connector.requested_snapshots() == 1


def test_a_table_is_dropped_and_created_again_while_changes_run(shop: Shop) -> None:
    shop.upstream("orders", "items")
    shop.lake.sql(f"BEGIN; {shop.creating('orders')}; {shop.creating('items')}; COMMIT")
    shop.follow_until_equal("orders", "items")
    closed = Event()
    with ThreadPoolExecutor(1) as threads:
        trading = threads.submit(_trade, shop.database, closed)
        try:
            shop.lake.sql("DROP TABLE shop.items")
            _ingest(shop, at_least=2)
            shop.lake.sql(shop.creating("items"))
            wait_for(lambda: _ingest(shop) and shop.since("items") is not None, "items are readable again")
            _ingest(shop, at_least=3)
        finally:
            closed.set()
        changes = trading.result()
    shop.follow_until_equal("orders", "items")
    assert shop.events("orders") == {"r": 200, "u": changes}, "orders was streamed, and not snapshotted again"

    lines = shop.lake.timelines.of(["shop.orders", "shop.items"]).values()
    since_ms = max(line.since_ms for line in lines)
    times = [b.mz_timestamp for b in shop.lake.batches.history("shop") if b.mz_timestamp >= since_ms and b.records]
    assert len(times) >= 3
    for time_ms in times:
        orders, items = (shop.lake.sql(f"SELECT id, n FROM shop.{t} AS OF {time_ms}").rows for t in ("orders", "items"))
        assert sorted(orders) == sorted(items), "each transaction changes both tables"


def _are_readable(shop: Shop, *tables: str) -> bool:
    """Ingest, and return whether the tables are readable after that."""
    shop.lake.ingest("shop")
    return all(shop.since(table) is not None for table in tables)


def _ingest(shop: Shop, at_least: int = 1) -> bool:
    """Ingest until `at_least` batches changed tables; no batch stops a table."""
    count = 0
    while count < at_least:
        for report in shop.lake.ingest("shop"):
            for error in report.stopped.values():
                raise error
            count += bool(report.tables)
    return True


def _trade(database: SourceDatabase, closed: Event) -> int:
    """Change a row of two tables in one transaction, again and again; return the number of transactions."""
    count = 0
    with psycopg.connect(database.addresses.postgres(database.name), autocommit=True) as connection:
        while not closed.wait(0.01):
            with connection.transaction():
                for table in (b"orders", b"items"):
                    connection.execute(b"UPDATE " + table + b" SET n = n + 1 WHERE id = %s", [count % 200 + 1])
            count += 1
    return count


def test_a_lost_slot_stops_the_source_until_all_tables_are_snapshotted_again(shop: Shop) -> None:
    shop.upstream("customers", "orders")
    shop.lake.sql(f"BEGIN; {shop.creating('orders')}; {shop.creating('customers', 'DEBEZIUM UPSERT')}; COMMIT")
    execute(shop.database, ["UPDATE orders SET n = 1", "UPDATE customers SET n = 1"])
    shop.follow_until_equal("orders", "customers")
    with ConnectClient(shop.database.addresses.connect) as worker:
        worker.stop(shop.database.name)
    shop.drop_slot()
    execute(shop.database, ["DELETE FROM orders WHERE id < 50", "DELETE FROM customers WHERE id < 50"])

    shop.reopen()
    with pytest.raises(LakeholdError) as refusal:
        shop.lake.ingest("shop")
    assert refusal.value.code == "slot-lost"
    assert "ALTER SOURCE shop RESNAPSHOT" in refusal.value.hint

    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.follow_until_equal("orders", "customers")


def test_a_killed_statement_is_finished_by_the_next_ingest(shop: Shop) -> None:
    shop.upstream("customers", "orders")
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")
    settings = shop.lake.settings
    killed = subprocess.run(
        [_COMMAND, "sql", shop.creating("customers"), "--warehouse", settings.warehouse],
        env={**os.environ, "LAKEHOLD_KILL_AT": "after-step:5", "LAKEHOLD_CATALOG_NAME": settings.catalog_name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with ConnectClient(shop.database.addresses.connect) as worker:
        wait_for(lambda: worker.status(shop.database.name).connector == "STOPPED", "the connector is stopped")
    assert shop.steps("ALTER SOURCE shop REPAIR") == ["snapshot of public.customers alone", "start connector shop"]

    shop.reopen()
    execute(shop.database, ["UPDATE orders SET n = 3", "UPDATE customers SET n = 3"])
    shop.follow_until_equal("orders", "customers")
