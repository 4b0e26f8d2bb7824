"""Tables without a key in a captured MariaDB: rows are a multiset, also if the connector repeats its snapshot at one position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from lakehold.errors import LakeholdError, UpstreamError
from lakehold.lake import Lake
from lakehold.stack import ConnectClient, StackAddresses
from lakehold.status import status_of
from lakehold.verify.comparison import Side
from tests.conftest import LakeFactory
from tests.connector_topics import ConnectorTopics
from tests.mariadb_server import PASSWORD, MariaDb
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

HISTORY = (
    "CREATE TABLE history (c_id INT, d_id INT, at DATETIME, amount DECIMAL(6, 2), data VARCHAR(24))",
    "INSERT INTO history SELECT seq MOD 3, 1, NULL, 10, IF(seq MOD 2, 'a', NULL) FROM seq_1_to_600",
)
ORDERS = (
    "CREATE TABLE orders (id INT PRIMARY KEY, n INT)",
    "INSERT INTO orders SELECT seq, 0 FROM seq_1_to_20",
)


class Shop:
    """The source `shop` of a lake over the database `shop` of a server."""

    def __init__(self, lake: Lake, stack: StackAddresses, server: MariaDb) -> None:
        self.lake, self.server = lake, server
        self.connector = ConnectorTopics(stack, "loose")
        server.execute("CREATE DATABASE shop")
        self.execute(*HISTORY, *ORDERS)
        lake.sql(server.declaring(stack, "shop", "loose"))

    def execute(self, *statements: str) -> None:
        self.server.execute("USE shop", *statements)

    def create(self, *tables: str) -> tuple[str, ...]:
        """Create tables of the lake in one statement; return its notices."""
        creating = (f"CREATE TABLE shop.{t} FROM SOURCE shop (TABLE 'shop.{t}') ENVELOPE DEBEZIUM" for t in tables)
        return tuple(self.lake.sql("; ".join(["BEGIN", *creating, "COMMIT"])).notices)

    def follow(self, *tables: str) -> None:
        """Ingest until tables of the lake have the rows of the database, each as often."""

        def equal() -> bool:
            for report in self.lake.ingest("shop"):
                for error in report.stopped.values():
                    raise error
            return all(self.is_readable(table) and self.rows(table) == self.wanted(table) for table in tables)

        wait_for(equal, "the lake is equal to the database", within_s=120)

    def is_readable(self, table: str) -> bool:
        status = status_of(self.lake)
        rows = (dict(zip(status.columns, row, strict=True)) for row in status.rows)
        return any(row["table"] == f"shop.{table}" and row["since"] is not None for row in rows)

    def rows(self, table: str) -> Counter[tuple[str, ...]]:
        found = self.lake.sql(f"SELECT * FROM {self.lake.settings.catalog_name}.shop.{table}").rows
        return Counter(tuple("NULL" if value is None else str(value) for value in row) for row in found)

    def wanted(self, table: str) -> Counter[tuple[str, ...]]:
        return Counter(self.server.rows(f"SELECT * FROM shop.{table}"))

    def stop_of(self, table: str) -> LakeholdError:
        """Ingest until a table stops, and return its error."""
        stopped: list[LakeholdError] = []

        def is_stopped() -> bool:
            stopped.extend(
                error
                for report in self.lake.ingest("shop")
                for name, error in report.stopped.items()
                if name == f"shop.{table}"
            )
            return bool(stopped)

        wait_for(is_stopped, f"{table} stops")
        return stopped[0]


@pytest.fixture
def shop(
    make_lake: LakeFactory, stack: StackAddresses, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", PASSWORD)
    found = Shop(make_lake(), stack, mariadb)
    yield found
    if "shop" in found.lake.definitions.definitions().sources:
        found.lake.sql("DROP SOURCE shop CASCADE")


@pytest.mark.soak
def test_a_history_with_equal_rows_is_followed_and_resnapshotted(shop: Shop) -> None:
    shop.execute("SET GLOBAL binlog_row_image = MINIMAL")
    with pytest.raises(UpstreamError) as refused:
        shop.create("history", "orders")
    assert refused.value.code == "row-image"
    shop.execute(refused.value.hint.partition(",")[0])
    assert shop.create("history", "orders") == ()
    shop.follow("history", "orders")
    shop.execute(
        "INSERT INTO history SELECT * FROM history",
        "DELETE FROM history WHERE c_id = 2 LIMIT 7",
        "UPDATE history SET data = 'x', at = '2026-11-26 10:00:00' WHERE c_id = 1 LIMIT 5",
        "UPDATE history SET data = NULL WHERE c_id = 1 LIMIT 50",
        "UPDATE orders, history SET n = 7, amount = NULL WHERE id = 1 AND c_id = 0 AND data IS NULL",
    )
    shop.follow("history", "orders")
    for change in ("INSERT INTO history VALUES (9, 9, NULL, NULL, NULL), (9, 9, NULL, NULL, NULL)", "SELECT 1"):
        shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
        shop.execute(change)
        shop.follow("history", "orders")
    since_ms = shop.lake.batches.history("shop")[-1].mz_timestamp
    shop.execute(
        "DELETE FROM history WHERE c_id = 9 LIMIT 1", "INSERT INTO history SELECT 8, 8, NULL, 1, '' FROM seq_1_to_3"
    )
    shop.follow("history")
    changes = shop.lake.sql(f"SUBSCRIBE shop.history WITH (SNAPSHOT = false) AS OF {since_ms}").rows
    assert sorted((diff, c_id) for _, diff, c_id, *_ in changes) == [(-1, 9), (3, 8)]

    compared = shop.lake.verify("shop.history")
    assert (compared.differences, compared.rows_in_lake) == ((), shop.wanted("history").total())
    shop.execute("SET sql_log_bin = 0", "INSERT INTO history VALUES (8, 8, NULL, 1, ''), (7, NULL, NULL, NULL, NULL)")
    compared = shop.lake.verify("shop.history")
    assert {(each.key[0], each.side) for each in compared.differences} == {
        ("8", Side.SEVERAL_ROWS),
        ("7", Side.ONLY_IN_DATABASE),
    }


def test_a_snapshot_that_was_interrupted_is_repeated_at_one_position(shop: Shop, stack: StackAddresses) -> None:
    count = 40_000
    shop.execute("TRUNCATE history", f"INSERT INTO history SELECT seq MOD 7, 1, NULL, 1, 'a' FROM seq_1_to_{count}")
    with ConnectClient(stack.connect) as worker:
        shop.create("history", "orders")
        wait_for(lambda: shop.connector.has_messages("shop.history"), "the first rows arrive")
        worker.stop("loose")
        interrupted_at = shop.connector.events("shop.history")["r"]
        assert 0 < interrupted_at < count, "the connector was stopped amid its snapshot"
        worker.resume("loose")
    wait_for(lambda: shop.connector.events("shop.orders") == {"r": 20}, "the snapshot is complete", within_s=120)
    sources = [value["payload"]["source"] for value in shop.connector.values("shop.history")]
    assert len({(source["file"], source["pos"]) for source in sources}) == 1, "both attempts have one position"
    first, *_, last = times = [source["ts_ms"] for source in sources]
    assert first < last
    assert times == [first] * interrupted_at + [last] * count, "each attempt has one time"
    shop.follow("history", "orders")
    shop.execute("DELETE FROM history WHERE c_id = 3 LIMIT 100")
    shop.follow("history", "orders")


@pytest.mark.soak
def test_a_table_that_joins_and_gets_a_primary_key_later(shop: Shop) -> None:
    shop.create("orders")
    shop.follow("orders")
    (notice,) = shop.create("history")
    assert "table shop.history has no primary key, so it cannot be snapshotted alone" in notice
    assert "ALTER SOURCE shop RESNAPSHOT" in notice
    shop.execute("DELETE FROM history WHERE c_id = 2 LIMIT 3")
    shop.lake.ingest("shop")
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.execute("INSERT INTO history SELECT * FROM history WHERE c_id = 1")
    shop.follow("orders", "history")
    # Its rows stay a multiset when it gets a primary key, and message keys change nothing.
    shop.execute(
        "DELETE FROM history",
        "INSERT INTO history SELECT seq, 1, NULL, 10, NULL FROM seq_1_to_9",
        "ALTER TABLE history ADD PRIMARY KEY (c_id)",
        "UPDATE history SET c_id = 20 WHERE c_id = 2",
        "UPDATE history SET data = 'x' WHERE c_id = 3",
        "INSERT INTO history VALUES (30, 1, NULL, NULL, NULL)",
    )
    shop.follow("orders", "history")
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.follow("orders", "history")


@pytest.mark.soak
def test_a_table_that_loses_its_primary_key_stops_with_a_way_out(shop: Shop) -> None:
    shop.create("history", "orders")
    shop.follow("history", "orders")
    shop.execute(
        "ALTER TABLE orders DROP PRIMARY KEY", "UPDATE orders SET n = 1", "UPDATE history SET d_id = 2 WHERE c_id = 1"
    )
    assert shop.stop_of("orders").code == "key-changed"

    def goes_on() -> bool:
        shop.lake.ingest("shop")
        return shop.rows("history") == shop.wanted("history")

    wait_for(goes_on, "the other table continues")
    shop.lake.sql("DROP TABLE shop.orders")
    (notice,) = shop.create("orders")
    assert "table shop.orders has no primary key" in notice
    assert "ALTER SOURCE shop RESNAPSHOT" in notice
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.execute("INSERT INTO orders SELECT * FROM orders WHERE id < 5")
    shop.follow("history", "orders")
