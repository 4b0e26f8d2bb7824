"""Statements alone capture a MariaDB server, like PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from pyiceberg.types import LongType

from lakehold.errors import LakeholdError, UpstreamError
from lakehold.lake import Lake
from lakehold.stack import ConnectClient, StackAddresses
from lakehold.status import status_of
from tests.bank import MariaDbBank
from tests.conftest import LakeFactory
from tests.connector_topics import ConnectorTopics
from tests.integration.test_live_transactions import assert_balanced_at_each_timestamp, open_for_business
from tests.mariadb_server import PASSWORD, SIGNAL_RIGHTS, MariaDb
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_ARRIVES_WITHIN_S = 60.0

CREATING_ITEMS = "CREATE TABLE shop.items FROM SOURCE shop (TABLE 'more.items') ENVELOPE DEBEZIUM"


class Shop:
    """The source `shop` over two databases of a server: it captures `orders` and `customers`, and not yet `more.items`."""

    def __init__(self, lake: Lake, stack: StackAddresses, server: MariaDb) -> None:
        self.lake, self.server = lake, server
        self.connector = ConnectorTopics(stack, "maria")
        for database in ("shop", "more"):
            server.execute(f"CREATE DATABASE {database}")
        for table in ("shop.orders", "shop.customers", "more.items"):
            server.execute(
                f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT, paid DECIMAL(10, 2))",
                f"INSERT INTO {table} VALUES (1, 0, 1.50), (2, 0, NULL), (3, 0, 99999999.99)",
            )
        lake.sql(
            f"{server.declaring(stack, 'shop', 'maria')};"
            "BEGIN;"
            "CREATE TABLE shop.orders FROM SOURCE shop (TABLE 'shop.orders') ENVELOPE DEBEZIUM;"
            "CREATE TABLE shop.customers FROM SOURCE shop (TABLE 'shop.customers') ENVELOPE DEBEZIUM UPSERT;"
            "COMMIT"
        )

    @property
    def signal_table(self) -> str:
        capture = self.lake.definitions.definitions().source("shop").capture
        assert capture is not None
        return f"lakehold_signals.of_{capture.server_id}"

    def ingest(self) -> int:
        """Ingest, which must stop no table; return the number of batches that changed tables."""
        reports = self.lake.ingest("shop")
        for report in reports:
            for error in report.stopped.values():
                raise error
        return sum(bool(report.tables) for report in reports)

    def follow(self, *tables: str) -> None:
        """Ingest until the lake's tables equal the database's."""
        deadline = time.monotonic() + _ARRIVES_WITHIN_S
        while True:
            self.ingest()
            found = {table: self.rows(table) for table in tables}
            wanted = {table: self.server.rows(f"SELECT id, n, paid FROM {table} ORDER BY id") for table in tables}
            if found == wanted:
                return
            assert time.monotonic() < deadline, (found, wanted)

    def rows(self, table: str) -> list[tuple[str, ...]]:
        name = f"shop.{table.partition('.')[2]}"
        if self.lake.tables.table_state(name) is None:
            return []
        found = self.lake.sql(f"SELECT id, n, paid FROM {self.lake.settings.catalog_name}.{name} ORDER BY id").rows
        return [tuple("NULL" if value is None else str(value) for value in row) for row in found]

    def is_readable(self, table: str) -> bool:
        """Ingest, and return whether the table has a `since`."""
        self.ingest()
        found = status_of(self.lake)
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
        return any(row["table"] == table and row["since"] is not None for row in rows)


@pytest.fixture
def shop(
    make_lake: LakeFactory, stack: StackAddresses, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", PASSWORD)
    found = Shop(make_lake(), stack, mariadb)
    found.follow("shop.orders", "shop.customers")
    yield found
    if "shop" in found.lake.definitions.definitions().sources:
        found.lake.sql("DROP SOURCE shop CASCADE")


@pytest.fixture
def poor(mariadb: MariaDb, request: pytest.FixtureRequest) -> Shop:
    """Return the shop with a user who may not have a signal table."""
    mariadb.execute("REVOKE CREATE, INSERT, DELETE, SELECT, DROP ON lakehold_signals.* FROM lakehold@'%'")
    shop: Shop = request.getfixturevalue("shop")
    return shop


def test_tables_are_captured_and_join(shop: Shop) -> None:
    shop.server.execute("UPDATE shop.orders SET n = 7 WHERE id < 3", "DELETE FROM shop.customers WHERE id = 3")
    shop.follow("shop.orders", "shop.customers")

    with pytest.raises(UpstreamError, match=r'"more\.item" is not in the database'):
        shop.lake.sql(CREATING_ITEMS.replace("more.items", "more.item"))
    shop.lake.sql(CREATING_ITEMS)
    shop.server.execute("UPDATE more.items SET n = 5", "UPDATE shop.orders SET n = 8")
    shop.follow("shop.orders", "shop.customers", "more.items")
    assert status_of(shop.lake).notices == ()


@pytest.mark.soak
def test_a_table_is_dropped_and_created_again_while_changes_run(shop: Shop) -> None:
    shop.lake.sql(CREATING_ITEMS)
    shop.follow("shop.orders", "more.items")
    closed = Event()
    with ThreadPoolExecutor(1) as threads:
        trading = threads.submit(_trade, shop.server, closed)
        try:
            shop.lake.sql("DROP TABLE shop.items")
            while not shop.ingest():
                pass
            shop.lake.sql(CREATING_ITEMS)
            deadline = time.monotonic() + _ARRIVES_WITHIN_S
            while not shop.is_readable("shop.items"):
                assert time.monotonic() < deadline
            while shop.ingest() < 1:
                pass
        finally:
            closed.set()
        assert trading.result() > 0
    shop.follow("shop.orders", "more.items")

    since_ms = max(line.since_ms for line in shop.lake.timelines.of(["shop.orders", "shop.items"]).values())
    times = [b.mz_timestamp for b in shop.lake.batches.history("shop") if b.mz_timestamp >= since_ms and b.records]
    assert times
    for time_ms in times:
        orders, items = (shop.lake.sql(f"SELECT id, n FROM shop.{t} AS OF {time_ms}").rows for t in ("orders", "items"))
        assert sorted(orders) == sorted(items), "each transaction changes both tables"


def _trade(server: MariaDb, closed: Event) -> int:
    """Change a row of two tables in one transaction, again and again; return the number of transactions."""
    count = 0
    while not closed.wait(0.01):
        changes = (
            f"UPDATE {table} SET n = n + 1 WHERE id = {count % 3 + 1}" for table in ("shop.orders", "more.items")
        )
        server.execute("BEGIN", *changes, "COMMIT")
        count += 1
    return count


def test_a_database_that_refuses_the_user_is_reported_before_anything_is_declared(
    shop: Shop, stack: StackAddresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", "another")
    with pytest.raises(LakeholdError) as refusal:
        shop.lake.sql(CREATING_ITEMS)
    assert refusal.value.code == "database-denied"
    assert "Access denied for user 'lakehold'" in refusal.value.detail
    assert "shop.items" not in shop.lake.definitions.definitions().tables
    (notice,) = status_of(shop.lake).notices
    assert notice.startswith("source shop: the database server at 127.0.0.1:")
    shop.ingest()
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", PASSWORD)
    assert status_of(shop.lake).notices == ()

    with ConnectClient(stack.connect) as worker:
        config = worker.config("maria")
        assert config is not None
        (objection,) = worker.objections("maria", {**config, "database.password": "another"})
    assert "Access denied for user 'lakehold'" in objection


def test_changes_of_a_table_out_of_the_connectors_list_are_fetched(shop: Shop, stack: StackAddresses) -> None:
    with ConnectClient(stack.connect) as worker:
        config = worker.config("maria")
        assert config is not None
        worker.stop("maria")
        worker.put("maria", {**config, "table.include.list": r"shop\.customers"})
        worker.resume("maria")
        worker.wait_until_running("maria")
    for table in ("shop.orders", "shop.customers"):
        shop.server.execute(
            f"UPDATE {table} SET n = 5 WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 2",
            f"INSERT INTO {table} VALUES (4, 0, 4.50)",
        )
    shop.follow("shop.customers")
    (notice,) = (notice for notice in shop.lake.sql("ALTER SOURCE shop REPAIR").notices if "missed" in notice)
    assert "shop.orders" in notice
    shop.follow("shop.orders", "shop.customers")

    def quiet() -> bool:
        shop.ingest()
        return status_of(shop.lake).notices == ()

    wait_for(quiet, "the lake has all missed changes")


@pytest.mark.soak
def test_a_lost_connector_of_an_earlier_lakehold_is_created_again_with_the_types_of_its_tables(
    shop: Shop, stack: StackAddresses
) -> None:
    option = "bigint.unsigned.handling.mode"
    shop.server.execute("ALTER TABLE more.items ADD total BIGINT UNSIGNED NOT NULL DEFAULT 5")
    with ConnectClient(stack.connect) as worker:
        config = worker.config("maria")
        assert config is not None
        worker.stop("maria")
        worker.put("maria", {name: value for name, value in config.items() if name != option})
        worker.resume("maria")
        worker.wait_until_running("maria")
        shop.lake.sql(CREATING_ITEMS)
        shop.follow("more.items")
        worker.delete("maria")
        shop.server.execute("INSERT INTO more.items VALUES (4, 0, NULL, 6)")
        shop.lake.sql("ALTER SOURCE shop REPAIR")
        shop.follow("more.items")
        made = worker.config("maria")
    assert made is not None
    assert option not in made
    items = shop.lake.tables.table_state("shop.items")
    assert items is not None
    assert items.schema.find_type("total") == LongType()
    assert shop.rows("more.items")[-1][0] == "4"


@pytest.mark.soak
def test_tables_are_truncated_without_waiting_for_an_end(shop: Shop) -> None:
    """Truncate tables: Debezium sends the BEGIN of a TRUNCATE, which commits by itself, but no END."""
    server = shop.server
    shop.lake.sql(CREATING_ITEMS)
    shop.follow("shop.orders", "shop.customers", "more.items")
    server.execute("TRUNCATE more.items", "INSERT INTO more.items VALUES (7, 0, NULL)", "UPDATE shop.orders SET n = 3")
    shop.follow("shop.orders", "shop.customers", "more.items")
    server.execute("TRUNCATE more.items")
    shop.follow("shop.orders", "shop.customers", "more.items")
    server.execute("TRUNCATE shop.customers", "UPDATE shop.orders SET n = 4")
    shop.follow("shop.orders", "shop.customers", "more.items")


def test_a_purged_log_is_reported_and_a_snapshot_has_its_changes(shop: Shop, stack: StackAddresses) -> None:
    with ConnectClient(stack.connect) as worker:
        worker.stop("maria")
        shop.server.execute(
            "UPDATE shop.orders SET n = 5", "DELETE FROM shop.customers WHERE id = 2", "FLUSH BINARY LOGS"
        )
        newest = shop.server.rows("SHOW BINARY LOGS")[-1][0]

        def purged() -> bool:
            shop.server.execute(f"PURGE BINARY LOGS TO '{newest}'")
            return [name for name, *_ in shop.server.rows("SHOW BINARY LOGS")] == [newest]

        wait_for(purged, "the old log is purged")
        worker.resume("maria")
    way_out = "ALTER SOURCE shop RESNAPSHOT"
    wait_for(lambda: any(notice.endswith(way_out) for notice in status_of(shop.lake).notices), "the task fails")
    shop.lake.sql(way_out)
    shop.follow("shop.orders", "shop.customers")


@pytest.mark.soak
def test_other_tables_go_on_while_the_rows_of_a_joining_table_are_read(shop: Shop) -> None:
    chunks, chunk_rows, changes = 20, 1_024, 20_000
    shop.server.execute(
        "USE more", "DELETE FROM items", f"INSERT INTO items SELECT seq, 0, NULL FROM seq_1_to_{chunks * chunk_rows}"
    )
    shop.connector.pause()
    # With this many updates the connector still lags when it is asked for a snapshot.
    updates = f"FOR i IN 1..{changes} DO UPDATE shop.orders SET n = i WHERE id = 1 + i MOD 3; END FOR"
    shop.server.execute(f"EXECUTE IMMEDIATE 'BEGIN NOT ATOMIC {updates}; END'")
    shop.connector.go_on()
    shop.lake.sql(CREATING_ITEMS)
    wait_for(lambda: shop.connector.events("more.items") == {"ad hoc": chunks * chunk_rows}, "all rows are read")
    wait_for(lambda: shop.connector.events("shop.orders") == {"r": 3, "u": changes}, "all changes have arrived")

    last_ms = max(shop.connector.sent_ms("shop.orders"))
    before = sum(sent_ms <= last_ms for sent_ms in shop.connector.sent_ms("more.items"))
    assert before <= 2 * chunk_rows, "the delayed changes arrive before all but the first rows"
    shop.follow("shop.orders", "more.items")
    assert shop.server.rows(f"SELECT id FROM {shop.signal_table}") == [("seen",)], "no signal is left"


@pytest.mark.soak
def test_a_table_joins_when_the_user_may_have_a_signal_table(poor: Shop) -> None:
    with pytest.raises(LakeholdError) as refusal:
        poor.lake.sql(CREATING_ITEMS)
    assert refusal.value.code == "database-refused"
    assert refusal.value.message.startswith(
        'user "lakehold" of source "shop" cannot have the signal table lakehold_signals.of_'
    )
    assert "GRANT CREATE, INSERT, DELETE, SELECT, DROP ON lakehold_signals.* TO lakehold" in refusal.value.hint
    assert "shop.items" not in poor.lake.definitions.definitions().tables
    assert status_of(poor.lake).notices == ()
    poor.follow("shop.orders", "shop.customers")

    poor.server.execute(SIGNAL_RIGHTS)
    poor.lake.sql(CREATING_ITEMS)
    poor.follow("shop.orders", "shop.customers", "more.items")
    wait_for(lambda: poor.is_readable("shop.items"), "it is readable")
    assert len(poor.server.rows(f"SHOW TABLES FROM lakehold_signals LIKE '{poor.signal_table.split('.')[1]}'")) == 1
    poor.lake.sql("DROP SOURCE shop CASCADE")
    assert poor.server.rows("SHOW DATABASES LIKE 'lakehold_signals'") == []


def test_a_bank_balances_while_a_table_joins(
    make_lake: LakeFactory, stack: StackAddresses, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", PASSWORD)
    bank, lake, connector = MariaDbBank(mariadb), make_lake(), ConnectorTopics(stack, "bank")
    bank.open()
    # These entries have no amounts: reading them takes a while.
    mariadb.execute("USE bank", "INSERT INTO entries (account, amount) SELECT 0, 0 FROM seq_1_to_20000")

    def ingested() -> bool:
        return not [error for report in lake.ingest("bank") for error in report.stopped.values()]

    def is_readable(table: str) -> bool:
        assert ingested()
        found = [reader.tables.get(table) for reader in lake.batches.readers("bank").values()]
        return any(progress is not None and progress.since_ms is not None for progress in found)

    def has_all() -> bool:
        found = lake.sql(f"SELECT count(*), sum(amount) FROM {lake.settings.catalog_name}.bank.entries").rows
        return [tuple(map(str, row)) for row in found] == mariadb.rows("SELECT count(*), sum(amount) FROM bank.entries")

    creating = "CREATE TABLE bank.{0} FROM SOURCE bank (TABLE 'bank.{0}') ENVELOPE DEBEZIUM UPSERT"
    lake.sql(mariadb.declaring(stack, "bank", "bank") + ";" + creating.format("accounts"))
    try:
        wait_for(lambda: is_readable("bank.accounts"), "accounts are readable")
        scans = connector.notifications().count("TABLE_SCAN_COMPLETED")
        with open_for_business(bank, 300) as is_open:
            lake.sql(creating.format("entries"))
            wait_for(lambda: connector.notifications().count("TABLE_SCAN_COMPLETED") > scans, "the entries are read")
            connector.pause()
            # The changes of accounts that were sent may be older than the scan.
            for _ in range(3):
                assert ingested()
            connector.go_on()
            while is_open():
                assert ingested()
        wait_for(lambda: is_readable("bank.entries") and has_all(), "all entries are in the lake")
        assert_balanced_at_each_timestamp(lake, "bank", at_least=1)
    finally:
        lake.sql("DROP SOURCE bank CASCADE")


def test_a_server_is_restored_from_a_backup_and_its_log_overtakes_the_lake(shop: Shop, make_lake: LakeFactory) -> None:
    server = shop.server

    def reopen() -> None:
        """Go on as another process, which has not inspected the database yet."""
        settings = shop.lake.settings
        shop.lake = make_lake(Path(settings.warehouse), catalog_name=settings.catalog_name)

    def logged() -> int:
        ((position,),) = server.rows("SELECT @@gtid_binlog_pos")
        return int(position.rpartition("-")[2])

    server.back_up()
    server.execute("UPDATE shop.orders SET n = 1", "INSERT INTO shop.orders VALUES (9, 9, 9)")
    reopen()
    shop.follow("shop.orders")

    read = logged()
    server.restore()
    while logged() <= read:
        server.execute("UPDATE shop.orders SET n = n + 10", "DELETE FROM shop.customers WHERE id = 2")
    before = shop.rows("shop.orders")
    reopen()
    with pytest.raises(UpstreamError) as refusal:
        shop.ingest()
    assert refusal.value.code == "database-restored"
    assert shop.rows("shop.orders") == before
