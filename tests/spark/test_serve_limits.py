"""The limits of a client of a served lake: the tables of its token, and a share of the statements that run at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from lakehold.lake import Lake
from lakehold.serve import statement_slots
from lakehold.serve.messages import message, packed
from lakehold.serve.serving import Door, served
from tests.conftest import LakeFactory
from tests.flight_sql import FlightSqlClient, batches
from tests.published_shop import COLUMNS, Shop
from tests.runnable_pages import checked
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

PAGE = "docs/how-to/connect-from-other-languages.md"
LIMITED, ALL = "5f1d90f2a1c64c09", "a" * 16


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    shop = Shop(make_lake)
    shop.write((1, "a"), (2, "b"))
    shop.lake.catalog.create_namespace("other")
    shop.lake.catalog.create_table("other.s", COLUMNS)
    shop.lake.catalog.create_table("shop.u", COLUMNS)
    return shop


@pytest.fixture
def address(shop: Shop, tmp_path: Path) -> Iterator[str]:
    (line,) = checked(PAGE, __file__)
    assert line.startswith(LIMITED)
    (tmp_path / "tokens").write_text(f"{line.replace('shop.orders,crm.*', 'shop.t,shop.v')}{ALL}\n")
    with served(shop.lake, Door(tokens=tmp_path / "tokens")) as address:
        yield address


@pytest.fixture
def limited(address: str) -> Iterator[FlightSqlClient]:
    with closing(FlightSqlClient(address, LIMITED)) as client:
        yield client


def test_a_token_that_is_limited_to_tables_reads_and_holds_them(limited: FlightSqlClient, shop: Shop) -> None:
    lake = shop.lake.settings.catalog_name
    assert limited.rows(f"WITH x AS (SELECT * FROM {lake}.shop.t) SELECT id FROM x ORDER BY id") == [
        {"id": 1},
        {"id": 2},
    ]
    assert limited.rows("SELECT operation FROM shop.t.snapshots") == [{"operation": "append"}]
    assert len(limited.rows("SELECT * FROM CHANGES(shop.t AS OF EARLIEST)")) == 0
    assert next(batches(limited.stream("SUBSCRIBE shop.t")))[0]["id"] == 1
    limited.rows("CREATE HOLD mine ON shop.t")
    shop.lake.sql("CREATE HOLD theirs ON shop.t, other.s")
    limited.rows("ALTER HOLD shop.mine ADVANCE")
    limited.rows("DROP HOLD mine")
    for name in ("theirs", "shop.theirs", "nobodys"):
        assert "code: tables-refused" in refused(limited, f"DROP HOLD {name}")
    assert [hold.name for hold in shop.lake.holds.all()] == ["theirs"]


def refused(client: FlightSqlClient, text: str) -> str:
    with pytest.raises(flight.FlightUnauthorizedError) as raised:
        client.rows(text)
    return str(raised.value)


def test_no_request_gives_a_limited_token_anything_of_other_tables(
    address: str, limited: FlightSqlClient, shop: Shop
) -> None:
    lake = shop.lake.settings.catalog_name
    text = refused(limited, "SELECT * FROM other.s")
    assert 'the token may not read "other.s"\ndetail: Its tables: shop.t, shop.v.\nhint: ' in text
    for other in ("shop.u", f"{lake}.other.s", "other.nothing", "other.s.snapshots", "mz_catalog.mz_tables"):
        assert "code: tables-refused" in refused(limited, f"SELECT 1 FROM {other}"), other
    ticket = packed(message("TicketStatementQuery", statement_handle=b"SUBSCRIBE other.s"))
    for request in (
        lambda: limited.prepare("SELECT * FROM other.s WHERE id = ?"),
        lambda: limited.prepare("SUBSCRIBE other.s"),
        lambda: limited.connection.do_get(flight.Ticket(ticket), limited.options).read_all(),
        lambda: limited.put(message("CommandStatementUpdate", query="CREATE HOLD h ON other.s")),
        lambda: limited.connection.get_schema(
            flight.FlightDescriptor.for_command(packed(message("CommandStatementQuery", query="SUBSCRIBE other.s"))),
            limited.options,
        ),
    ):
        # PyArrow's server sends what get_schema raises as an error of its own.
        with pytest.raises((flight.FlightUnauthorizedError, pa.ArrowException), match="code: tables-refused"):
            request()
    assert limited.listed("CommandGetDbSchemas").column("db_schema_name").to_pylist() == ["shop"]
    listed = limited.listed("CommandGetTables", include_schema=True)
    assert listed.column("table_name").to_pylist() == ["t"]
    assert limited.listed("CommandGetPrimaryKeys", db_schema="other", table="s").num_rows == 0
    with closing(FlightSqlClient(address, ALL)) as unlimited:
        assert unlimited.rows("SELECT count(*) AS n FROM other.s") == [{"n": 0}]
        assert unlimited.listed("CommandGetDbSchemas").num_rows == 3


def test_an_error_suggests_no_table_that_the_token_may_not_read(
    address: str, limited: FlightSqlClient, shop: Shop
) -> None:
    shop.lake.catalog.create_table("shop.vv", COLUMNS)
    with closing(FlightSqlClient(address, ALL)) as unlimited:
        for text in (
            "SUBSCRIBE shop.v",
            "SELECT * FROM shop.v AS OF LATEST",
            "SELECT * FROM CHANGES(shop.v AS OF 1)",
            "CREATE HOLD h ON shop.v",
        ):
            with pytest.raises(flight.FlightError, match=r'mean "shop\.vv"'):
                unlimited.rows(text)
            with pytest.raises(flight.FlightError, match=r'"shop\.v"') as raised:
                limited.rows(text)
            assert "shop.vv" not in str(raised.value), text
        with pytest.raises(flight.FlightError, match='Did you mean "id"'):
            limited.rows("SUBSCRIBE shop.t ENVELOPE UPSERT (KEY (idd))")


def test_a_view_passes_on_what_it_reads_to_a_token_that_may_read_the_view(limited: FlightSqlClient, shop: Shop) -> None:
    shop.lake.sql("INSERT INTO other.s VALUES (7, 'x')")
    shop.lake.sql("CREATE VIEW shop.v AS SELECT id FROM other.s")
    shop.lake.sql("CREATE VIEW shop.w AS SELECT id FROM shop.t")
    assert limited.rows("SELECT * FROM shop.v") == [{"id": 7}]
    assert "code: tables-refused" in refused(limited, "SELECT * FROM shop.w")


def test_statements_beyond_the_limit_wait_and_are_then_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_slots, "WAITS_S", 0.5)
    with (
        served(shop.lake, Door(max_statements=2)) as address,
        closing(FlightSqlClient(address)) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        followed = [client.stream("SUBSCRIBE shop.t"), client.stream("SUBSCRIBE shop.u WITH (PROGRESS)")]
        assert all(next(batches(reader)) for reader in followed)
        with pytest.raises(flight.FlightUnavailableError, match=r"(?s)detail: 2 statements run .*code: server-busy"):
            client.rows("SELECT 1 AS one")
        monkeypatch.setattr(statement_slots, "WAITS_S", 60.0)
        waiting = pool.submit(client.rows, "SELECT 1 AS one")
        followed[0].cancel()
        assert waiting.result(60) == [{"one": 1}]
        followed[1].cancel()
        wait_for(lambda: client.rows("SELECT count(*) AS n FROM shop.t") == [{"n": 2}], "both slots are free")


def test_a_client_that_leaves_just_before_its_columns_arrive_gives_its_slot_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statement_slots, "WAITS_S", 5.0)
    left = threading.Event()
    opened = Lake.open_subscription

    def once_the_client_has_left(*arguments: Any) -> Any:
        found = opened(*arguments)
        left.wait(60)
        return found

    monkeypatch.setattr(Lake, "open_subscription", once_the_client_has_left)
    ticket = flight.Ticket(packed(message("TicketStatementQuery", statement_handle=b"SUBSCRIBE shop.t")))
    with served(shop.lake, Door(max_statements=1)) as address, closing(FlightSqlClient(address)) as client:
        for milliseconds in (500, 530, 560, 590, 620):
            left.clear()
            with pytest.raises(flight.FlightTimedOutError):
                client.connection.do_get(ticket, flight.FlightCallOptions(timeout=milliseconds / 1_000)).read_all()
            left.set()
            assert client.rows("SELECT count(*) AS n FROM shop.t") == [{"n": 2}]


@pytest.mark.parametrize("clauses", ["", "WITH (SNAPSHOT = false)"])
def test_a_subscription_that_spark_computes_ends_with_its_client(shop: Shop, clauses: str) -> None:
    slow = "SELECT count(*) AS n FROM shop.t JOIN range(100000000000) r ON t.id % 7 = r.id % 5"
    shop.write((3, "c"))
    tracker = shop.lake.spark.sparkContext.statusTracker()
    with served(shop.lake, Door(max_statements=1)) as address, closing(FlightSqlClient(address)) as client:
        reader = client.stream(f"SUBSCRIBE ({slow}) {clauses} AS OF EARLIEST")
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(next, batches(reader))
            wait_for(lambda: bool(tracker.getActiveStageIds()), "Spark computes")
            reader.cancel()
            assert reading.exception() is not None
        wait_for(lambda: not tracker.getActiveStageIds(), "Spark is interrupted")
        assert client.rows("SELECT count(*) AS n FROM shop.t") == [{"n": 3}]
