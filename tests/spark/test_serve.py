"""A lake served over Flight SQL, as any client sees it; ADBC's and JDBC's drivers are in `integration/test_flight_clients.py`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from lakehold.serve import statement_rows
from lakehold.serve.messages import message
from lakehold.serve.serving import Door, served
from lakehold.subscribe.on_spark import streamed
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.flight_sql import FlightSqlClient, batches
from tests.published_shop import COLUMNS, Shop
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

BI, OPS = "b" * 16, "o" * 16


@pytest.fixture
def foreign_lag_ms() -> int:
    """Return how long a commit may take while a client reads. No time: in most tests each waits for the other."""
    return 0


@pytest.fixture
def shop(make_lake: LakeFactory, foreign_lag_ms: int) -> Shop:
    shop = Shop(make_lake, foreign_lag_ms)
    shop.write((1, "a"), (2, "b"))
    return shop


@pytest.fixture
def client(shop: Shop) -> Iterator[FlightSqlClient]:
    with served(shop.lake, Door()) as address:
        client = FlightSqlClient(address)
        yield client
        client.close()


def refused(client: FlightSqlClient, text: str) -> str:
    with pytest.raises(flight.FlightError) as raised:
        client.rows(text)
    assert "Traceback" not in str(raised.value)
    return str(raised.value)


def reading_threads() -> int:
    return sum(thread.name == "lakehold-rows" for thread in threading.enumerate())


def test_queries_read_tables_now_and_at_a_time(client: FlightSqlClient, shop: Shop) -> None:
    before = now_ms()
    shop.write((2, "c"), (3, "d"))
    lake = shop.lake.settings.catalog_name

    assert client.rows("SELECT * FROM shop.t ORDER BY id DESC LIMIT 2") == [{"id": 3, "v": "d"}, {"id": 2, "v": "c"}]
    assert client.rows(f"SELECT count(*) AS n FROM {lake}.shop.t AS OF {before}") == [{"n": 2}]
    assert client.rows("SELECT id, id FROM shop.t WHERE id > 3") == []
    found = client.rows(f"SELECT mz_diff, v FROM CHANGES(shop.t AS OF {before}, NET) ORDER BY v")
    assert [(row["mz_diff"], row["v"]) for row in found] == [(-1, "b"), (1, "c"), (1, "d")]
    assert client.rows("SHOW TABLES IN shop")[0]["tableName"] == "t"
    assert client.rows("SHOW TBLPROPERTIES shop.t ('format-version')")[0]["key"] == "format-version"
    assert client.rows("DESCRIBE (SELECT id AS session FROM shop.t)")[0]["col_name"] == "session"
    assert "BatchScan" in client.rows("EXPLAIN SELECT * FROM shop.t")[0]["plan"]


@pytest.mark.parametrize("foreign_lag_ms", [3_000])
def test_a_subscription_sends_changes_as_they_come_and_ends_with_its_client(
    client: FlightSqlClient, shop: Shop
) -> None:
    before = reading_threads()
    reader = client.stream("SUBSCRIBE shop.t ENVELOPE UPSERT (KEY (id)) WITH (PROGRESS)")
    rows = (row for batch in batches(reader) for row in batch)
    changes = (row for row in rows if not row["mz_progressed"])
    assert [next(changes)["id"], next(changes)["id"]] == [1, 2]
    shop.lake.sql("DELETE FROM shop.t WHERE id = 2")
    deleted = next(changes)
    assert (deleted["mz_state"], deleted["id"]) == ("delete", 2)
    complete = next(row["mz_timestamp"] for row in rows if row["mz_progressed"])

    reader.cancel()
    wait_for(lambda: reading_threads() <= before, "the reading ends")
    shop.lake.sql("INSERT INTO shop.t VALUES (3, 'c')")
    end = now_ms() + 1
    resumed = client.rows(f"SUBSCRIBE shop.t WITH (SNAPSHOT = false) AS OF {complete - 1} UP TO {end}")
    assert [(row["mz_diff"], row["id"]) for row in resumed] == [(1, 3)]


def test_a_query_ends_with_its_client(client: FlightSqlClient) -> None:
    before = reading_threads()
    slow = "SELECT count(*) FROM range(100000000000) a JOIN range(100000) b ON a.id % 7 = b.id % 5"
    info = client.info(message("CommandStatementQuery", query=slow))
    reader = client.connection.do_get(info.endpoints[0].ticket, client.options)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(next, batches(reader))
        wait_for(lambda: reading_threads() > before, "the query runs")
        reader.cancel()
        assert reading.exception() is not None
    wait_for(lambda: reading_threads() <= before, "Spark is interrupted")
    assert client.rows("SELECT count(*) AS n FROM shop.t") == [{"n": 2}]


def test_a_client_reaches_nothing_but_the_lake(client: FlightSqlClient, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    for text in (
        f"SELECT * FROM text.`{secret}`",
        f"DESCRIBE text.`{secret}`",
        f"SELECT * FROM csv.`file:{secret}` AS OF LATEST",
        "SELECT * FROM spark_catalog.default.t",
        "SELECT reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT `java_method` ('java.lang.System', 'getProperty', 'user.home')",
        "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getProperty', 'user.home')",
        "SELECT TRANSFORM(id) USING 'cat' AS (x) FROM shop.t",
        "SUBSCRIBE (SELECT reflect('a', 'b') AS x FROM shop.t)",
        f"SUBSCRIBE shop.t WITHIN TIMESTAMP ORDER BY (SELECT max(value) FROM text.`{secret}`)",
    ):
        assert "code: " in refused(client, text), text
    assert "FileScan" not in client.rows(f"EXPLAIN SELECT * FROM text.`{secret}`")[0]["plan"]
    assert client.rows("SELECT '${env:HOME}' AS home") == [{"home": "${env:HOME}"}]
    for text in (
        "DROP TABLE shop.t",
        "INSERT INTO shop.t VALUES (3, 'x')",
        "WITH x AS (SELECT 3, 'x') INSERT INTO shop.t SELECT * FROM x",
        "FROM shop.t INSERT OVERWRITE DIRECTORY '/tmp' SELECT *",
        "SET spark.sql.runSQLOnFiles = true",
        "USE other",
        "CREATE TEMPORARY VIEW v AS SELECT 1",
        "CREATE CONNECTION k TO KAFKA (BROKER 'b:9092')",
        "CREATE ROLE me",
        "CALL lake.system.expire_snapshots('shop.t')",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "EXPLAIN DROP TABLE shop.t",
    ):
        assert any(code in refused(client, text) for code in ("statement-refused", "syntax")), text
    assert client.rows("SELECT count(*) AS n FROM shop.t") == [{"n": 2}]


def test_errors_have_message_detail_hint_and_code(client: FlightSqlClient) -> None:
    text = refused(client, "SELECT id FROM shop.t AS OF 1")
    assert '"shop.t" is not readable at 1\ndetail: Readable: ' in text
    assert "\nhint: Choose a time from " in text
    assert "\ncode: not-readable\n" in text
    assert "code: statement-too-long" in refused(client, f"SELECT '{'x' * 1_000_000}'")
    assert "code: syntax" in refused(client, f"SELECT 1 FRM {'x, ' * 30_000} y")
    assert "code: syntax" in refused(client, "")
    assert "code: syntax" in refused(client, "SELECT 1; SELECT 2")


def test_requests_that_are_not_of_flight_sql_are_refused(client: FlightSqlClient) -> None:
    connection = client.connection
    for ticket in (b"", b"\xff\xff\xff", b"SELECT 1"):
        with pytest.raises(flight.FlightError, match="code: flight-request"):
            connection.do_get(flight.Ticket(ticket)).read_all()
        with pytest.raises(flight.FlightError, match="code: flight-request"):
            connection.get_flight_info(flight.FlightDescriptor.for_command(ticket))
    with pytest.raises(flight.FlightError, match="code: flight-request"):
        connection.get_flight_info(flight.FlightDescriptor.for_path("shop", "t"))
    with pytest.raises(flight.FlightError, match="code: flight-request"):
        list(connection.do_action(flight.Action("BeginTransaction", b"")))
    with pytest.raises(flight.FlightError, match="code: flight-request"):
        client.reader(message("TicketStatementQuery", statement_handle=b"\xff"))
    with pytest.raises(flight.FlightError, match="code: flight-request"):
        client.put(message("CommandGetCatalogs"))
    assert client.rows("SELECT 1 AS one") == [{"one": 1}]


def test_prepared_statements_take_parameters_and_run_at_any_server(client: FlightSqlClient, shop: Shop) -> None:
    text = "SELECT * FROM shop.t WHERE id = ? AND v <> '?' AND v <> ?"
    prepared = client.prepare(text)
    assert pa.ipc.read_schema(pa.py_buffer(prepared.dataset_schema)).names == ["id", "v"]
    assert len(pa.ipc.read_schema(pa.py_buffer(prepared.parameter_schema))) == 2

    def bind(*values: object, handle: bytes = prepared.prepared_statement_handle) -> bytes:
        command = message("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        sent = pa.table({str(place): [value] for place, value in enumerate(values)})
        answer = message("DoPutPreparedStatementResult")
        answer.ParseFromString(client.put(command, sent))
        return bytes(answer.prepared_statement_handle)

    def rows(handle: bytes) -> list[object]:
        command = message("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        return list(client.reader(command).read_all().to_pylist())

    assert rows(bind(2, "' OR id = 1 --")) == [{"id": 2, "v": "b"}]
    assert rows(bind("1", "x")) == [{"id": 1, "v": "a"}]
    assert rows(bind(1, "x", handle=bind(2, "x"))) == [{"id": 1, "v": "a"}]
    with pytest.raises(flight.FlightError, match="code: parameters"):
        bind(1)
    ticket = (
        client.info(message("CommandPreparedStatementQuery", prepared_statement_handle=bind(2, "x")))
        .endpoints[0]
        .ticket
    )
    with served(shop.lake, Door()) as address:
        other = FlightSqlClient(address)
        assert other.connection.do_get(ticket).read_all().to_pylist() == [{"id": 2, "v": "b"}]
        other.close()


def test_a_parameter_may_stand_for_a_time_and_for_a_number_of_rows(client: FlightSqlClient, shop: Shop) -> None:
    first = shop.lake.catalog.load_table("shop.t").metadata.snapshot_log[0].timestamp_ms
    shop.write((3, "c"))
    last = shop.lake.catalog.load_table("shop.t").metadata.snapshot_log[-1].timestamp_ms
    for text, values, rows in (
        ("SELECT id FROM shop.t AS OF ?", [str(first)], 2),
        ("SELECT id FROM shop.t AS OF AT LEAST ?", ["2001-01-01"], 2),
        ("SELECT id FROM shop.t ORDER BY id LIMIT ? OFFSET ?", ["2", 2], 1),
        ("SUBSCRIBE shop.t AS OF ? UP TO ?", [first, str(first + 1)], 2),
        (f"SUBSCRIBE shop.t AS OF ? UP TO {first + 1}", [first], 2),
        (f"SUBSCRIBE (SELECT id FROM shop.t) UP TO {first + 1} WITH (PROGRESS = false) AS OF ?", [str(first)], 2),
        (f"SELECT id FROM CHANGES(shop.t AS OF ? UP TO {first + 1})", [first], 0),
        ("SELECT * FROM CHANGES(shop.t AS OF ? UP TO ?, NET)", [str(first), last + 1], 1),
        ("CREATE HOLD h ON shop.t AT ?", [str(first)], 0),
        ("SELECT * FROM shop.t VERSION AS OF ?", ["main"], 3),
        ("SELECT * FROM shop.t TIMESTAMP AS OF ?", ["2100-01-01"], 3),
        ("ALTER HOLD h ADVANCE TO ?", [last], 0),
    ):
        prepared = client.prepare(text).prepared_statement_handle
        command = message("CommandPreparedStatementQuery", prepared_statement_handle=prepared)
        answer = message("DoPutPreparedStatementResult")
        answer.ParseFromString(client.put(command, pa.table({str(n): [value] for n, value in enumerate(values)})))
        bound = message("CommandPreparedStatementQuery", prepared_statement_handle=answer.prepared_statement_handle)
        assert client.reader(bound).read_all().num_rows == rows, text
    assert [hold.at_ms for hold in shop.lake.holds.all()] == [last]
    prepared = client.prepare("CREATE HOLD g ON shop.t AT ?").prepared_statement_handle
    update = message("CommandPreparedStatementUpdate", prepared_statement_handle=prepared)
    client.put(update, pa.table({"at": [str(first)]}))
    assert [hold.at_ms for hold in shop.lake.holds.all() if hold.name == "g"] == [first]


def test_statements_on_holds_run_once_with_the_role_of_the_token(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"# clients\n{OPS} ops\n{BI} bi\n")
    shop.lake.sql("CREATE ROLE ops")
    with served(shop.lake, Door(tokens=tmp_path / "tokens")) as address:
        ops, bi = FlightSqlClient(address, OPS), FlightSqlClient(address, BI)
        ops.rows("CREATE HOLD week ON shop.t")
        update = message("CommandStatementUpdate", query="CREATE HOLD day ON shop.t")
        ops.put(update)
        assert "code: role-missing" in refused(bi, "CREATE HOLD mine ON shop.t")
        assert {(row["name"], row["owner"]) for row in bi.rows("SHOW HOLDS")} == {("week", "ops"), ("day", "ops")}
        prepared = ops.prepare("DROP HOLD day")
        assert (prepared.is_update, prepared.dataset_schema) == (True, b"")
        for wrong in (None, "wrong", BI[:-1], f"{BI}b"):
            stranger = FlightSqlClient(address, wrong)
            assert "code: token-refused" in refused(stranger, "SELECT 1")
            stranger.close()
        basic = ops.connection.authenticate_basic_token("anybody", BI)
        assert basic == (b"authorization", f"Bearer {BI}".encode())
        ops.close()
        bi.close()
    assert {hold.name for hold in shop.lake.holds.all()} == {"week", "day"}


def test_schemas_tables_columns_and_keys_are_listed(client: FlightSqlClient, shop: Shop) -> None:
    lake = shop.lake.settings.catalog_name
    assert client.listed("CommandGetCatalogs").to_pylist() == [{"catalog_name": lake}]
    assert client.listed("CommandGetDbSchemas").column("db_schema_name").to_pylist() == ["mz_catalog", "shop"]
    assert client.listed("CommandGetDbSchemas", catalog="other").num_rows == 0
    (table,) = client.listed("CommandGetTables", db_schema_filter_pattern="sh_p", include_schema=True).to_pylist()
    columns = pa.ipc.read_schema(pa.py_buffer(table.pop("table_schema")))
    assert table == {"catalog_name": lake, "db_schema_name": "shop", "table_name": "t", "table_type": "TABLE"}
    assert columns == pa.schema([("id", pa.int64()), ("v", pa.string())])
    assert client.listed("CommandGetTables", table_types=["VIEW"]).num_rows == 0
    shop.lake.sql("CREATE VIEW shop.v AS SELECT id, upper(v) AS name FROM shop.t")
    (view,) = client.listed("CommandGetTables", table_types=["VIEW"], include_schema=True).to_pylist()
    assert (view["table_name"], view["table_type"]) == ("v", "VIEW")
    assert pa.ipc.read_schema(pa.py_buffer(view["table_schema"])).names == ["id", "name"]
    assert client.listed("CommandGetTables", table_name_filter_pattern="mz\\_h%").num_rows > 0
    assert client.listed("CommandGetTableTypes").column(0).to_pylist() == ["SYSTEM TABLE", "TABLE", "VIEW"]
    for name in ("CommandGetPrimaryKeys", "CommandGetExportedKeys", "CommandGetImportedKeys", "CommandGetXdbcTypeInfo"):
        assert client.listed(name).num_rows == 0
    facts = dict(zip(*client.listed("CommandGetSqlInfo", info=[0, 3, 504]).to_pydict().values(), strict=True))
    assert facts == {0: "lakehold", 3: True, 504: "`"}


def test_a_damaged_table_is_listed_without_columns_beside_the_others(shop: Shop) -> None:
    for table in ("garbled", "gone"):
        shop.lake.catalog.create_table(f"shop.{table}", COLUMNS)
        metadata = Path(shop.lake.catalog.load_table(f"shop.{table}").metadata_location.removeprefix("file://"))
        metadata.unlink()
        if table == "garbled":
            metadata.write_text("{")
    with served(shop.again(), Door()) as address, closing(FlightSqlClient(address)) as client:
        listed = client.listed("CommandGetTables", db_schema_filter_pattern="shop", include_schema=True).to_pylist()
    columns = {row["table_name"]: pa.ipc.read_schema(pa.py_buffer(row["table_schema"])).names for row in listed}
    assert columns == {"garbled": [], "gone": [], "t": ["id", "v"]}


def test_many_clients_read_side_by_side_and_closing_ends_them_all(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Barrier(5)

    def together(*arguments: object) -> Iterator[pa.Table]:
        started.wait(60)
        yield from streamed(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(statement_rows, "streamed", together)
    before = reading_threads()
    with served(shop.lake, Door()) as address, ThreadPoolExecutor(4) as pool:
        client = FlightSqlClient(address)
        subscribed = client.stream("SUBSCRIBE shop.t")
        assert next(batches(subscribed))
        answers = [
            pool.submit(FlightSqlClient(address).rows, f"SELECT {n} AS n, count(*) AS c FROM shop.t") for n in range(4)
        ]
        started.wait(60)
        assert [each.result() for each in answers] == [[{"n": n, "c": 2}] for n in range(4)]
    wait_for(lambda: reading_threads() <= before, "no reading is left")
    with pytest.raises(flight.FlightUnavailableError, match="code: server-stops"):
        subscribed.read_all()
