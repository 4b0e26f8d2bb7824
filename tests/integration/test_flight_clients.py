"""`lakehold serve` as a process with the drivers of ADBC and JDBC, as `how-to/connect-from-other-languages.md` shows."""

from __future__ import annotations

import datetime
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import adbc_driver_manager
import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.java_gateway import launch_gateway as launch_java
from py4j.protocol import Py4JJavaError
from pyarrow import flight

from lakehold import artifacts
from lakehold.lake import connect
from tests.flight_sql import FlightSqlClient, batches
from tests.runnable_pages import checked
from tests.waiting import wait_for

PAGE = "docs/how-to/connect-from-other-languages.md"
DEFAULT = "grpc://127.0.0.1:32010"
TOKEN = "0123456789abcdef"
ORDERS = pa.schema([("id", pa.int64()), ("status", pa.string())])


def place(warehouse: Path, *rows: tuple[int, str]) -> None:
    with connect(str(warehouse)) as lake:
        columns = dict(zip(ORDERS.names, map(list, zip(*rows, strict=True)), strict=True))
        lake.catalog.load_table("shop.orders").append(pa.table(columns, ORDERS))


class Server:
    """A process of `lakehold serve`, started as the page says."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.warehouse = directory / "lake"
        command = ["lakehold", "serve", "--warehouse", "lake", *options, "--port", "0"]
        self.process = subprocess.Popen(
            [str(Path(sys.executable).with_name("lakehold")), *command[1:]],
            cwd=directory,
            env={**os.environ, "LAKEHOLD_FOREIGN_LAG_MS": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def address(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def stop(self) -> tuple[int, str]:
        """Stop it as Ctrl-C does; returns the exit code and what is on stderr."""
        self.process.send_signal(signal.SIGINT)
        try:
            _, stderr = self.process.communicate(timeout=120)
        finally:
            self.process.kill()
        return self.process.returncode, stderr


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shop")
    with connect(str(directory / "lake")) as lake:
        lake.catalog.create_namespace("shop")
        lake.catalog.create_table("shop.orders", ORDERS)
    place(directory / "lake", (1, "placed"), (2, "paid"))
    return directory


@pytest.fixture(scope="module")
def server(shop: Path) -> Iterator[Server]:
    command, *_ = checked(PAGE, __file__)
    assert command == "lakehold serve --warehouse lake\n"
    server = Server(shop)
    yield server
    code, stderr = server.stop()
    assert (code, "Traceback" in stderr) == (0, False)


@pytest.fixture(scope="module")
def address(server: Server) -> str:
    return server.address()


def test_the_program_on_the_page_reads_and_follows_with_adbc(address: str, shop: Path) -> None:
    *_, program, _ = checked(PAGE, __file__)
    assert DEFAULT in program
    printed = StringIO()
    with redirect_stdout(printed):
        exec(program.replace(DEFAULT, address).replace("print(batch.to_pylist())", "print(batch.to_pylist()); break"))
    assert printed.getvalue().startswith("[(1, 'placed'), (2, 'paid')]\n[{'mz_timestamp': ")

    with flight_sql.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT status FROM shop.orders WHERE id = ? AS OF LATEST", (2,))
        assert cursor.fetchall() == [("paid",)]
        for number, status in ((1, "placed"), (2, "paid"), (1, "placed")):
            cursor.execute("SELECT status FROM shop.orders WHERE id = ? AS OF LATEST", (number,))
            assert cursor.fetchall() == [(status,)]
        with pytest.raises(
            adbc_driver_manager.Error, match=r"(?s)a client may not run DROP.*\ncode: statement-refused\n"
        ):
            cursor.execute("DROP TABLE shop.orders")
        assert connection.adbc_get_table_schema("orders", db_schema_filter="shop") == ORDERS
        (catalog,) = connection.adbc_get_objects(depth="tables").read_all().to_pylist()
        assert [schema["db_schema_name"] for schema in catalog["catalog_db_schemas"]] == ["mz_catalog", "shop"]
        assert connection.adbc_get_info()["vendor_name"] == "lakehold"

        cursor.execute("SUBSCRIBE shop.orders WITH (SNAPSHOT = false)")
        batches = cursor.fetch_record_batch()
        place(shop / "lake", (3, "placed"))
        (row,) = next(batches).to_pylist()
        assert (row["mz_diff"], row["id"]) == (1, 3)
        at = row["mz_timestamp"]
        cursor.execute(f"SUBSCRIBE shop.orders WITH (SNAPSHOT = false) AS OF ? UP TO {at + 1}", (at - 1,))
        assert cursor.fetchall() == [(at, 1, 3, "placed")]


class Jdbc:
    """A Java process with the driver, and a connection."""

    def __init__(self, address: str, **properties: str) -> None:
        (jar,) = artifacts.jars("flight-sql-jdbc")
        port = launch_java(
            classpath=str(jar), javaopts=["--add-opens=java.base/java.nio=ALL-UNNAMED", "-Xmx256m"], die_on_exit=True
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        *_, urls = checked(PAGE, __file__)
        (url,) = re.findall(r"^jdbc:\S+useEncryption=false$", urls, re.MULTILINE)
        given = self._gateway.jvm.java.util.Properties()
        for name, value in properties.items():
            given.setProperty(name, value)
        url = url.replace("127.0.0.1:32010", address.rpartition("/")[2])
        self.connection = self._gateway.jvm.java.sql.DriverManager.getConnection(url, given)

    def close(self) -> None:
        """End the Java process; closing the connection would raise: the driver does not free what it had read ahead."""
        self._gateway.shutdown()


def rows(found: Any) -> list[tuple[str | None, ...]]:
    columns = range(1, found.getMetaData().getColumnCount() + 1)
    taken = []
    while found.next():
        taken.append(tuple(found.getString(column) for column in columns))
    found.close()
    return taken


@pytest.fixture
def jdbc(address: str) -> Iterator[Jdbc]:
    with closing(Jdbc(address)) as jdbc:
        yield jdbc


def test_jdbc_reads_prepares_lists_and_follows(jdbc: Jdbc, shop: Path) -> None:
    statement = jdbc.connection.createStatement()
    assert rows(statement.executeQuery("SELECT id, status FROM shop.orders WHERE id < 3 ORDER BY id")) == [
        ("1", "placed"),
        ("2", "paid"),
    ]
    with pytest.raises(Py4JJavaError, match=r"(?s)cannot be resolved.*\ncode: UNRESOLVED_COLUMN"):
        statement.executeQuery("SELECT nope FROM shop.orders")
    assert not statement.execute("CREATE HOLD week ON shop.orders")
    assert [row[:2] for row in rows(statement.executeQuery("SHOW HOLDS"))] == [("shop", "week")]

    prepared = jdbc.connection.prepareStatement("SELECT status FROM shop.orders WHERE id = ? AS OF LATEST")
    prepared.setString(1, "2")
    assert rows(prepared.executeQuery()) == [("paid",)]
    update = jdbc.connection.prepareStatement("CREATE HOLD month ON shop.orders AT ?")
    update.setString(1, held := rows(statement.executeQuery("SHOW HOLDS"))[0][2])
    assert update.executeUpdate() == 0
    assert [row[2] for row in rows(statement.executeQuery("SHOW HOLDS"))] == [held, held]
    assert jdbc.connection.prepareStatement("DROP HOLD month").executeUpdate() == 0

    about = jdbc.connection.getMetaData()
    assert (about.getDatabaseProductName(), about.isReadOnly(), about.supportsTransactions()) == (
        "lakehold",
        True,
        False,
    )
    assert about.getMaxConnections() == about.getDefaultTransactionIsolation() == 0
    assert [row[:4] for row in rows(about.getTables(None, "shop", "%", None))] == [("lake", "shop", "orders", "TABLE")]
    assert [row[3:6:2] for row in rows(about.getColumns("lake", "shop", "orders", "%"))] == [
        ("id", "BIGINT"),
        ("status", "VARCHAR"),
    ]
    assert rows(about.getPrimaryKeys("lake", "shop", "orders")) == []

    # The driver waits for the first rows before it returns: PROGRESS sends one at once.
    following = statement.executeQuery("SUBSCRIBE shop.orders WITH (PROGRESS, SNAPSHOT = false)")
    place(shop / "lake", (4, "placed"))
    while following.next() and following.getBoolean("mz_progressed"):
        pass
    assert (following.getString("mz_diff"), following.getString("id")) == ("1", "4")
    at = following.getLong("mz_timestamp")
    following.close()

    between = f"SUBSCRIBE shop.orders WITH (SNAPSHOT = false) AS OF ? UP TO {at + 1}"
    prepared = jdbc.connection.prepareStatement(between)
    prepared.setString(1, str(at - 1))
    assert rows(prepared.executeQuery()) == [(str(at), "1", "4", "placed")]

    resumed = jdbc.connection.prepareStatement("SUBSCRIBE shop.orders WITH (RESUME = ?)")
    resumed.setString(1, None)
    first = resumed.executeQuery()
    while first.next() and first.getString("mz_resume") is None:
        pass
    token = first.getString("mz_resume")
    first.close()
    place(shop / "lake", (5, "placed"))
    resumed.setString(1, token)
    rest = resumed.executeQuery()
    while rest.next() and rest.getBoolean("mz_progressed"):
        pass
    assert (rest.getString("mz_diff"), rest.getString("id")) == ("1", "5")
    rest.close()


def test_other_machines_need_tls_and_a_token(shop: Path) -> None:
    _, command, tokens, *_ = checked(PAGE, __file__)
    options = command.split()[4:]
    exposed = Server(shop, *options[:2])
    _, stderr = exposed.process.communicate(timeout=120)
    assert (exposed.process.returncode, "code: serve-exposed" in stderr) == (1, True)

    certificate = self_signed(shop)
    (shop / "tokens").write_text(tokens.replace("5f1d…c09a", TOKEN).replace("77e2…41bd", TOKEN[::-1]))
    server = Server(shop, *options)
    port = server.address().rpartition(":")[2]
    trusted = {"adbc.flight.sql.client_option.tls_root_certs": certificate}
    admitted = {**trusted, "adbc.flight.sql.authorization_header": f"Bearer {TOKEN}"}
    url = f"grpc+tls://localhost:{port}"
    with flight_sql.connect(url, admitted, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) AS n FROM shop.orders WHERE id < 3")
        assert cursor.fetchall() == [(2,)]
    with (
        flight_sql.connect(url, trusted, autocommit=True) as connection,
        connection.cursor() as cursor,
        pytest.raises(adbc_driver_manager.Error, match="code: token-refused"),
    ):
        cursor.execute("SELECT 1")
    code, stderr = server.stop()
    assert (code, "Traceback" in stderr) == (0, False)
    wait_for(lambda: server.process.poll() is not None, "the server ends")


def test_ctrl_c_ends_the_server_while_a_client_takes_nothing(shop: Path) -> None:
    server = Server(shop)
    address = server.address()
    with closing(FlightSqlClient(address)) as paused, closing(FlightSqlClient(address)) as reading:
        wide = paused.stream("SELECT repeat('x', 1000000) AS wide FROM range(100)")
        assert next(batches(wide))
        followed = batches(reading.stream("SUBSCRIBE shop.orders"))
        assert next(followed)
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(flight.FlightUnavailableError, match="code: server-stops"):
            next(followed)
        _, stderr = server.process.communicate(timeout=120)
        assert (server.process.returncode, stderr) == (0, "")


def self_signed(directory: Path) -> str:
    """Write a certificate for localhost and its key, as the page names them; returns the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (directory / "tls.crt").write_bytes(pem)
    (directory / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return pem.decode()
