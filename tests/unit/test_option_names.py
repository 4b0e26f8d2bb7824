"""Options whose names are written with dots: the same options as with spaces, now and in lakes of earlier versions."""

from __future__ import annotations

import pytest

from lakehold.definitions import Connection, ConnectionType
from lakehold.errors import DefinitionError, StatementError
from lakehold.sql.run.script_run import Runner
from lakehold.state.objects import OBJECTS, DefinitionStore, ObjectRow
from lakehold.state.store import MemoryState
from lakehold.upstream.wanted.connections import login_of
from tests.unit.test_sql_run import runner, with_shop

POSTGRES = "CREATE CONNECTION pg TO POSTGRES (HOST 'db', USER 'u', DATABASE 'd', {})"
TABLE = "CREATE TABLE shop.items FROM SOURCE shop (TOPIC 'orders') ENVELOPE {}"


def shown(lake: Runner, what: str) -> str:
    return str(lake.run(f"SHOW CREATE {what}").rows[0][1])


@pytest.mark.parametrize(
    "options",
    [
        "SSL MODE 'verify-full', SSL CERTIFICATE AUTHORITY '/ca.pem'",
        "ssl.mode = 'verify-full', ssl.certificate.authority = '/ca.pem'",
        "\"ssl.mode\" 'verify-full', \"SSL.certificate.authority\" '/ca.pem'",
    ],
)
def test_a_login_checks_certificates_however_its_options_are_written(options: str) -> None:
    lake, _ = runner()
    lake.run(POSTGRES.format(options))
    login = login_of(lake.store.definitions().connection("pg"))
    assert login.tls == {"sslmode": "verify-full", "sslrootcert": "/ca.pem"}


def test_half_a_check_is_refused_however_it_is_written() -> None:
    lake, _ = runner()
    with pytest.raises(DefinitionError, match="needs SSL CERTIFICATE AUTHORITY"):
        lake.run(POSTGRES.format("ssl.mode 'verify-full'"))


def test_options_of_a_table_apply_with_dots_and_show_create_can_be_run() -> None:
    lake, _ = with_shop()
    lake.run(TABLE.format("UPSERT WITH (on.error = 'fail', retain.history = '1h', \"sorted.by\" (id))"))
    lake.run("ALTER TABLE shop.items SET (retain.history = '2d')")
    written = shown(lake, "TABLE shop.items")
    assert written.endswith("WITH (ON ERROR 'fail', RETAIN HISTORY '2d', SORTED BY (id))")
    again = lake.run(written.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
    assert again.notices == ()
    lake.run("ALTER TABLE shop.items RESET (retain.history)")
    assert "RETAIN HISTORY" not in shown(lake, "TABLE shop.items")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (TABLE.format("DEBEZIUM WITH (format.version = 2)"), "needs Iceberg's format version 3"),
        (
            "CREATE MATERIALIZED VIEW bi.v WITH (format.version = 2) AS SELECT id FROM shop.orders",
            "needs Iceberg's format version 3",
        ),
        (
            TABLE.format("UPSERT WITH (partitioned.by (id), buckets 8)"),
            "PARTITIONED BY takes the place of BUCKETS",
        ),
    ],
)
def test_checks_of_options_apply_with_dots(sql: str, message: str) -> None:
    lake, _ = with_shop()
    with pytest.raises(StatementError, match=message):
        lake.run(sql)


def test_options_that_an_earlier_version_stored_with_dots_apply() -> None:
    state = MemoryState()
    stored = (
        '{"name": "pg", "type": "postgres", "options": {"host": "db", "user": "u", "database": "d",'
        ' "ssl.mode": "verify-full", "ssl.certificate.authority": "/ca.pem"}}'
    )
    row = ObjectRow("1", "connection", None, "pg", stored, "CREATE CONNECTION …", 1)
    state.store(OBJECTS).change(lambda rows: (*rows, row))

    lake, _ = runner(DefinitionStore(state))
    connection = lake.store.definitions().connection("pg")
    assert isinstance(connection, Connection)
    assert connection.type is ConnectionType.POSTGRES
    assert login_of(connection).tls == {"sslmode": "verify-full", "sslrootcert": "/ca.pem"}
    assert "SSL MODE 'verify-full'" in shown(lake, "CONNECTION pg")
