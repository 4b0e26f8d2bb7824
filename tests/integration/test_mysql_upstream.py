"""Operations on a MariaDB server: signal tables, sync points in the log, and what lakehold finds of tables and users."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from lakehold.errors import UpstreamRefused, UpstreamUnavailable
from lakehold.model.log_positions import position_of_end
from lakehold.servers import HOST
from lakehold.upstream.connect.signals import requested_snapshot
from lakehold.upstream.differences.log_settings import ROW_IMAGE, WHOLE_ROWS
from lakehold.upstream.found.columns import FoundColumn, FoundType
from lakehold.upstream.found.found import (
    ABSENT,
    HASHED,
    PLAIN,
    VERSIONED,
    WITHOUT_OVERLAPS,
    FoundRelation,
    FoundSignals,
    FoundSignalTable,
)
from lakehold.upstream.mysql.database import MysqlUpstream
from lakehold.upstream.plan.capture_steps import CreateSignalTable, DropSignalTable
from lakehold.upstream.wanted.connector_config import Login
from tests.doc_pages import page
from tests.mariadb_server import PASSWORD, MariaDb
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name
from tests.runnable_pages import parts

pytestmark = pytest.mark.stack

TABLE, OTHER = "lakehold_signals.of_7", "lakehold_signals.of_8"
_TIMEOUT_S = 5.0


def _upstream(
    server: MariaDb, user: str = "lakehold", password: str = PASSWORD, port: int | None = None
) -> MysqlUpstream:
    return MysqlUpstream(Login(HOST, port or server.port, user, password), _TIMEOUT_S)


def test_a_signal_table_is_created_once_and_dropped_with_its_database(mariadb: MariaDb) -> None:
    upstream = _upstream(mariadb)
    assert upstream.signals(TABLE) == FoundSignals(None, may_make=True)
    for name in (TABLE, TABLE, OTHER):
        upstream.apply(CreateSignalTable(name, None))
    assert upstream.signals(TABLE) == FoundSignals(FoundSignalTable(), may_make=True)
    for _ in range(2):
        upstream.apply(DropSignalTable(TABLE))
        assert upstream.signals(TABLE).table is None
        assert upstream.signals(OTHER).table is not None
    upstream.apply(DropSignalTable(OTHER))
    assert mariadb.rows("SHOW DATABASES LIKE 'lakehold_signals'") == []
    upstream.apply(DropSignalTable(OTHER))


def test_a_signal_table_keeps_the_time_of_the_last_inspection(mariadb: MariaDb) -> None:
    upstream = _upstream(mariadb)
    assert upstream.record_seen(TABLE, 5) is None
    upstream.apply(CreateSignalTable(TABLE, None))
    assert upstream.signals(TABLE).table == FoundSignalTable(seen_ms=None)
    for at_ms in (5, 7):
        assert upstream.record_seen(TABLE, at_ms) == at_ms
        assert upstream.signals(TABLE).table == FoundSignalTable(seen_ms=at_ms)
    assert upstream.record_seen(TABLE, 6) == 7, "a process that was paused does not replace a later time"
    assert upstream.signals(TABLE).table == FoundSignalTable(seen_ms=7)
    mariadb.execute("REVOKE INSERT ON lakehold_signals.* FROM lakehold@'%'")
    assert upstream.record_seen(TABLE, 9) == 7, "a user who may not write gets the stored time"


def test_signals_and_marks_are_in_the_log_and_not_in_the_table(mariadb: MariaDb) -> None:
    upstream = _upstream(mariadb)
    upstream.apply(CreateSignalTable(TABLE, None))
    upstream.send_signal(TABLE, requested_snapshot("t1", "shop.it's"))
    (first,) = mariadb.rows("SELECT @@gtid_binlog_pos")
    assert upstream.write_sync_point(TABLE) == position_of_end(mariadb.rows("SELECT @@gtid_binlog_pos")[0][0])
    mariadb.execute("CREATE DATABASE shop")
    before, sync_point = position_of_end(first[0]), upstream.write_sync_point(TABLE)
    assert before is not None
    assert (sync_point.log, sync_point.at > before.at) == (before.log, True)
    assert mariadb.rows(f"SELECT * FROM {TABLE}") == []


@pytest.mark.parametrize(
    ("grants", "may_make"),
    [
        ([], False),
        (["SELECT, INSERT, DELETE, DROP ON lakehold_signals.*"], False),
        (["ALL PRIVILEGES ON *.*"], True),
        (["SELECT ON *.*", "INSERT, DELETE, CREATE ON lakehold_signals.*"], True),
        ([f"SELECT, INSERT, DELETE, CREATE ON {TABLE}"], False),
        (["admin"], True),
    ],
)
def test_it_is_known_beforehand_whether_the_user_may_create_a_signal_table(
    mariadb: MariaDb, grants: list[str], may_make: bool
) -> None:
    upstream = _granted(mariadb, grants)
    assert upstream.signals(TABLE) == FoundSignals(None, may_make=may_make)
    if may_make:
        upstream.apply(CreateSignalTable(TABLE, None))
        upstream.write_sync_point(TABLE)
        return
    with pytest.raises(UpstreamRefused) as refusal:
        upstream.apply(CreateSignalTable(TABLE, None))
    assert refusal.value.code == "database-refused"
    assert "denied" in refusal.value.detail
    assert "GRANT CREATE, INSERT, DELETE, SELECT, DROP ON lakehold_signals.* TO u" in refusal.value.hint


@pytest.mark.parametrize(
    ("grants", "found"),
    [
        ([], None),
        (["SELECT ON *.*"], FoundSignalTable(may_write=False, is_owned=False)),
        (["SELECT ON *.*", f"INSERT, DELETE ON {TABLE}"], FoundSignalTable(is_owned=False)),
        (["SELECT, INSERT (id, type, data), DELETE, DROP ON lakehold_signals.of_7"], FoundSignalTable(may_write=False)),
        ([f"SELECT, INSERT, DELETE, DROP ON {TABLE}"], FoundSignalTable()),
        (["admin"], FoundSignalTable()),
    ],
)
def test_the_rights_of_the_user_on_an_existing_signal_table_are_found(
    mariadb: MariaDb, grants: list[str], found: FoundSignalTable | None
) -> None:
    _upstream(mariadb).apply(CreateSignalTable(TABLE, None))
    upstream = _granted(mariadb, grants)
    assert upstream.signals(TABLE).table == found
    if found is not None and found.may_write:
        upstream.write_sync_point(TABLE)
    if found is not None and found.is_owned:
        upstream.apply(DropSignalTable(TABLE))
        assert upstream.signals(TABLE).table is None


def test_a_read_only_server_is_not_written_to(mariadb: MariaDb) -> None:
    upstream = _granted(mariadb, ["ALL ON *.*"])
    mariadb.execute("SET GLOBAL read_only = ON")
    assert not upstream.signals(TABLE).may_be_had
    mariadb.execute("SET GLOBAL read_only = OFF")
    assert upstream.signals(TABLE).may_be_had


def test_a_superuser_makes_one_as_documented(mariadb: MariaDb) -> None:
    upstream = _granted(mariadb, [])
    (shown,) = (part.text for part in parts(page("operate/connectors.md")) if part.kind == "mysql")
    mariadb.execute(*shown.replace("<server id>", "7").replace("<user>", "u").split(";"))
    assert upstream.signals(TABLE).table == FoundSignalTable(is_owned=False)
    upstream.write_sync_point(TABLE)


def _granted(server: MariaDb, grants: Sequence[str]) -> MysqlUpstream:
    server.execute("CREATE ROLE admin", "GRANT ALL ON lakehold_signals.* TO admin", "CREATE USER u IDENTIFIED BY 'p'")
    server.execute(*(f"GRANT {grant} TO u" for grant in grants), "SELECT 1")
    if "admin" in grants:
        server.execute("SET DEFAULT ROLE admin FOR u")
    return _upstream(server, "u", "p")


def test_a_server_that_does_not_answer_or_refuses_the_user_is_reported(mariadb: MariaDb) -> None:
    for upstream, code, detail in [
        (_upstream(mariadb, password="another"), "database-denied", "Access denied for user 'lakehold'"),
        (_upstream(mariadb, user="nobody"), "database-denied", "Access denied for user 'nobody'"),
        (_upstream(mariadb, port=1), "database-unavailable", "Can't connect"),
    ]:
        with pytest.raises(UpstreamUnavailable) as refusal:
            upstream.signals(TABLE)
        assert refusal.value.code == code
        assert detail in refusal.value.detail


def test_a_signal_has_the_form_that_debezium_reads(mariadb: MariaDb) -> None:
    upstream = _upstream(mariadb)
    upstream.apply(CreateSignalTable(TABLE, None))
    mariadb.execute(
        "USE lakehold_signals",
        "CREATE TABLE seen (id text, type text, data text)",
        "CREATE TRIGGER see AFTER INSERT ON of_7 FOR EACH ROW INSERT INTO seen VALUES (NEW.id, NEW.type, NEW.data)",
    )
    signal = requested_snapshot("t1", "shop.items")
    upstream.send_signal(TABLE, signal)
    ((found_id, kind, data),) = mariadb.rows("SELECT * FROM lakehold_signals.seen")
    assert {"id": found_id, "type": kind, "data": json.loads(data)} == json.loads(signal)


def test_the_relation_under_a_name_is_found_with_its_columns(mariadb: MariaDb) -> None:
    mariadb.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id BIGINT UNSIGNED PRIMARY KEY, Total DECIMAL(12, 2) NOT NULL, twice INT AS (2) VIRTUAL, "
        "hidden INT INVISIBLE, kind ENUM('a(1)', 'unsigned') DEFAULT 'unsigned')",
        "CREATE VIEW shop.paid AS SELECT Total, id FROM shop.orders",
    )
    names = ["shop.orders", "shop.paid", "shop.none"]
    assert _upstream(mariadb).relations(names) == {
        "shop.orders": FoundRelation(PLAIN),
        "shop.paid": FoundRelation("view"),
    }
    assert _upstream(mariadb).columns(["shop.orders", "shop.none"]) == {
        "shop.orders": (
            _column("id", "bigint", "bigint(20) unsigned", is_nullable=False, is_key=True),
            _column("Total", "decimal", "decimal(12,2)", is_nullable=False),
            _column("twice", "int", "int(11)", is_generated=True),
            _column("hidden", "int", "int(11)", is_invisible=True),
            _column("kind", "enum", "enum('a(1)','unsigned')", has_default=True),
        )
    }


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ("id INT PRIMARY KEY, n INT) WITH SYSTEM VERSIONING", VERSIONED),
        ("id INT PRIMARY KEY, n TEXT, UNIQUE (n))", HASHED),
        ("id INT PRIMARY KEY, n TEXT, UNIQUE (n(20)))", PLAIN),
        ("id INT PRIMARY KEY, n INT, UNIQUE (n) USING HASH)", HASHED),
        ("id INT PRIMARY KEY, n INT, UNIQUE (n) USING HASH) ENGINE = MEMORY", PLAIN),
        ("id INT, a DATE, b DATE, PERIOD FOR p (a, b), PRIMARY KEY (id, p WITHOUT OVERLAPS))", WITHOUT_OVERLAPS),
        ("id INT PRIMARY KEY, `a ``WITHOUT OVERLAPS` VARCHAR(50) DEFAULT 'it''s WITHOUT OVERLAPS')", PLAIN),
    ],
)
def test_tables_with_hidden_columns_in_their_changes_are_found(mariadb: MariaDb, columns: str, found: str) -> None:
    mariadb.execute("CREATE DATABASE shop", f"CREATE TABLE shop.orders ({columns}")
    assert _upstream(mariadb).relations(["shop.orders"]) == {"shop.orders": FoundRelation(found)}
    shown = PLAIN if found == WITHOUT_OVERLAPS else found
    assert _upstream(mariadb).kinds(["shop.none", "none.orders", "shop.orders"]) == {
        "shop.none": FoundRelation(ABSENT),
        "none.orders": FoundRelation(ABSENT),
        "shop.orders": FoundRelation(shown),
    }


def _column(name: str, kind: str, text: str, **flags: Any) -> FoundColumn:
    return FoundColumn(name, text, FoundType(kind, text), **flags)


@pytest.mark.parametrize(
    ("text", "arguments", "is_unsigned"),
    [
        ("decimal(12,2)", (12, 2), False),
        ("bigint(20) unsigned zerofill", (20,), True),
        ("bit(8)", (8,), False),
        ("double", (), False),
        ("enum('a(1)',' unsigned ')", (), False),
    ],
)
def test_numbers_are_read_from_a_type(text: str, arguments: tuple[int, ...], is_unsigned: bool) -> None:
    found = FoundType(text.partition("(")[0], text)
    assert (found.arguments, found.is_unsigned) == (arguments, is_unsigned)


def test_the_right_of_the_user_to_read_a_table_is_found(mariadb: MariaDb) -> None:
    mariadb.execute(
        "CREATE DATABASE closed",
        "CREATE TABLE closed.items (id INT PRIMARY KEY, total INT)",
        "CREATE TABLE closed.columns (id INT PRIMARY KEY, total INT)",
        "CREATE TABLE closed.seen (id INT PRIMARY KEY)",
        "CREATE USER reader IDENTIFIED BY 'x'",
        "GRANT SELECT ON closed.items TO reader",
        "GRANT SELECT (id) ON closed.columns TO reader",
        "GRANT INSERT ON closed.seen TO reader",
    )
    names = ["closed.items", "closed.columns", "closed.seen"]
    found = _upstream(mariadb, user="reader", password="x").relations(names)
    assert found.keys() >= {"closed.items", "closed.seen"}
    assert {name for name, relation in found.items() if relation.may_read} == {"closed.items"}

    mariadb.execute("REVOKE ALL PRIVILEGES, GRANT OPTION FROM reader")
    mariadb.execute("GRANT SELECT ON closed.seen TO reader")
    found = _upstream(mariadb, user="reader", password="x").kinds(["closed.items", "other.items", "closed.seen"])
    assert found == {"closed.seen": FoundRelation(PLAIN)}, "what the user may not see may exist"


def test_settings_of_the_log_are_found_as_far_as_the_server_has_them(mariadb: MariaDb) -> None:
    good = {ROW_IMAGE: WHOLE_ROWS, "log_bin_compress": "OFF", "binlog_format": "ROW"}
    bad = {ROW_IMAGE: "MINIMAL", "log_bin_compress": "ON", "binlog_format": "MIXED"}
    assert _upstream(mariadb).log_settings() == good
    mariadb.execute(*(f"SET GLOBAL {name} = {value}" for name, value in bad.items()))
    assert _upstream(mariadb).log_settings() == bad


def test_foreign_keys_whose_actions_are_not_logged_are_found(mariadb: MariaDb) -> None:
    key = "FOREIGN KEY (p) REFERENCES shop.p (id)"
    mariadb.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.p (id INT PRIMARY KEY)",
        f"CREATE TABLE shop.plain (id INT PRIMARY KEY, p INT, {key})",
        f"CREATE TABLE shop.strict (id INT PRIMARY KEY, p INT, {key} ON DELETE RESTRICT ON UPDATE NO ACTION)",
        f"CREATE TABLE shop.child (id INT PRIMARY KEY, p INT, CONSTRAINT of_p {key} ON DELETE CASCADE)",
    )
    upstream = _upstream(mariadb)
    names = ["shop.p", "shop.plain", "shop.strict", "shop.child"]
    found = upstream.acting_keys([*names, "shop.missing"])
    assert {name: keys for name, keys in found.items() if keys} == {"shop.child": ("of_p (ON DELETE CASCADE)",)}
    mariadb.execute("INSERT INTO shop.p VALUES (1)", "INSERT INTO shop.child VALUES (1, 1)", "FLUSH BINARY LOGS")
    mariadb.execute("DELETE FROM shop.p")
    (log, *_) = mariadb.rows("SHOW BINARY LOGS")[-1]
    logged = [row[2] for row in mariadb.rows(f"SHOW BINLOG EVENTS IN '{log}'")]
    assert mariadb.rows("SELECT * FROM shop.child") == []
    assert logged.count("Delete_rows_v1") == 1, "of the parent alone"
