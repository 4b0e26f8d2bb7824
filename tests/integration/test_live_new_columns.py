"""A column that is added upstream with a default has the same values in the lake, in rows that no message is about."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from lakehold.errors import LakeholdError, UpstreamUnavailable
from lakehold.iceberg.data_tables import TableState
from lakehold.lake import Lake
from lakehold.status import status_of
from lakehold.upstream.postgres.database import PostgresUpstream
from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.conftest import LakeFactory
from tests.live_source import execute
from tests.stack_fixtures import SourceDatabase
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_START_OF_2001_US = 978_307_200_000_000

_TYPES = {
    "flag": "boolean DEFAULT false",
    "small": "smallint DEFAULT -7",
    "whole": "int NOT NULL DEFAULT 5",
    "big": "bigint DEFAULT 9007199254740993",
    "object": "oid DEFAULT 4294967295",
    "single": "real DEFAULT 0.1",
    "twice": "double precision DEFAULT 1e-320",
    "cents": "numeric(12,2) DEFAULT 1.5",
    "digits": "numeric(50,10) DEFAULT 12.5",
    "bare": "numeric DEFAULT 0.00000012",
    "large": "numeric DEFAULT 1e25",
    "trimmed": "numeric DEFAULT -1.50",
    "zero": "numeric DEFAULT 0.00",
    "hundreds": "numeric DEFAULT 100.00",
    "note_": """text DEFAULT E'it''s "q", {a}\\n\\\\ ${env:HOME}'""",
    "empty": "text DEFAULT ''",
    "nulls": "text DEFAULT 'NULL'",
    "padded": "char(5) DEFAULT 'ab'",
    "letter": """"char" DEFAULT 'a'""",
    "named": "name DEFAULT 'n'",
    "token": "uuid DEFAULT 'F79C3E09-677C-4BBD-A479-3F349CB785E7'",
    "document": """jsonb DEFAULT '{"b": [1, 2.50], "a": null}'""",
    "plain": """json DEFAULT '{"b": 1,  "a": 2}'""",
    "markup": "xml DEFAULT '<a/>'",
    "address": "inet DEFAULT '10.0.0.1/8'",
    "card": "macaddr DEFAULT '08:00:2b:01:02:03'",
    "span": "int4range DEFAULT '[1,5]'",
    "raw": "bytea DEFAULT '\\x00ff'",
    "one_bit": "bit(1) DEFAULT B'1'",
    "day": "date DEFAULT '2026-11-26'",
    "always": "date DEFAULT 'infinity'",
    "clock": "time DEFAULT '09:30:00.5'",
    "coarse": "time(3) DEFAULT '09:30'",
    "local": "timestamp DEFAULT '2026-11-26 10:00:00.123456'",
    "millis": "timestamp(3) DEFAULT '1969-11-26 10:00:00.1234'",
    "ends": "timestamp DEFAULT 'infinity'",
    "instant": "timestamptz DEFAULT '2026-11-26 10:00:00.5+02'",
    "never": "timestamptz DEFAULT '-infinity'",
    "at": "timestamptz NOT NULL DEFAULT now()",
    "mood": "mood DEFAULT 'so so'",
    "price": "price DEFAULT 2.5",
    "preset": "preset",
}
"""Columns whose default PostgreSQL keeps beside the column."""


VALUE_FORMATS = pytest.mark.parametrize(
    "value_format",
    ["FORMAT JSON", pytest.param("FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry", marks=pytest.mark.soak)],
)


def _follow(shop: Shop, rows: int, table: str = "orders") -> None:
    """Ingest until the table has so many rows."""

    def is_there() -> bool:
        for report in shop.lake.ingest("shop"):
            for error in report.stopped.values():
                raise error
        return shop._has(table) and len(_rows(shop.lake, "id", table)) == rows

    wait_for(is_there, f"{rows} rows")


def _rows(lake: Lake, columns: str = "*", table: str = "orders") -> list[tuple[Any, ...]]:
    return sorted(lake.sql(f"SELECT {columns} FROM {lake.settings.catalog_name}.shop.{table}").rows)


@VALUE_FORMATS
def test_rows_older_than_a_column_have_what_a_message_with_its_default_has(
    make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch, value_format: str
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(make_lake, database, value_format)
    shop.upstream("orders", rows=3)
    execute(database, ["CREATE TYPE mood AS ENUM ('happy', 'so so')", "CREATE DOMAIN price AS numeric(9, 3)"])
    execute(database, ["CREATE DOMAIN preset AS int DEFAULT 3"])
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")

    added = ", ".join(f"ADD {name} {kind}" for name, kind in _TYPES.items())
    database.execute("UPDATE orders SET n = 1 WHERE id = 2")
    execute(database, [f"ALTER TABLE orders {added}", "INSERT INTO orders (id, n, note) VALUES (4, 0, 'new')"])
    # Both messages are in the batch that brings the columns: the first one has none of them.
    wait_for(lambda: len(shop.sent_ms("orders")) == 5, "both messages were sent")
    _follow(shop, 4)
    names = ", ".join(f"CAST({name} AS STRING) AS {name}" if name != "raw" else "hex(raw)" for name in _TYPES)
    first, second, third, sent = _rows(shop.lake, f"id, n, {names}")
    assert (first[0], second[:2], sent[0]) == (1, (2, 1), 4)
    different = {n: (f, s) for n, f, s in zip(_TYPES, first[2:], sent[2:], strict=True) if f != s}
    assert different == {}
    assert None not in first
    assert second[2:] == first[2:] == third[2:]
    schema = _state(shop).schema
    assert all(schema.find_field(name).initial_default is not None for name in _TYPES)
    assert len(shop.sent_ms("orders")) == 5, "nothing was snapshotted again"
    shop.close()


def _filled(shop: Shop, table: str, column: str) -> int:
    state = shop.lake.tables.table_state(f"shop.{table}")
    has_column = state is not None and any(field.name == column for field in state.schema.fields)
    return len([row for row in _rows(shop.lake, f"id, {column}", table) if row[1] is not None]) if has_column else 0


def test_changes_over_a_new_column_show_no_old_row_and_retract_it_with_its_default(shop: Shop) -> None:
    shop.upstream("orders", rows=4)
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")
    shop.follow_until_readable("orders")
    before = shop.lake.sql("SUBSCRIBE TO shop.orders WITH (SNAPSHOT)").rows
    at = before[0][0]
    shop.database.execute("ALTER TABLE orders ADD c int NOT NULL DEFAULT 5, ADD at timestamptz DEFAULT now()")
    shop.database.execute("ALTER TABLE orders ALTER c DROP DEFAULT, ALTER at SET DEFAULT '2001-01-01'")
    shop.database.execute("INSERT INTO orders (id, n, c) VALUES (5, 0, 7)")
    _follow(shop, 5)
    ((added,),) = shop.query("SELECT DISTINCT (extract(epoch FROM at) * 1000000)::bigint FROM orders WHERE id < 5")
    columns = "id, c, unix_micros(at)"
    assert _rows(shop.lake, columns) == [*((i, 5, added) for i in range(1, 5)), (5, 7, _START_OF_2001_US)]

    shop.database.execute("DELETE FROM orders WHERE id = 1")
    _follow(shop, 4)
    shop.database.execute("UPDATE orders SET n = 1 WHERE id = 2")
    wait_for(lambda: shop.lake.ingest("shop") is not None and _rows(shop.lake, "id, n")[0] == (2, 1), "the update")
    diffs = shop.lake.sql(f"SUBSCRIBE (SELECT {columns} FROM shop.orders) WITH (SNAPSHOT = false) AS OF {at}").rows
    assert [tuple(row[1:]) for row in diffs] == [(1, 5, 7, _START_OF_2001_US), (-1, 1, 5, added)]
    whole = shop.lake.sql(f"SUBSCRIBE (SELECT id, n, c FROM shop.orders) WITH (SNAPSHOT = false) AS OF {at}").rows
    assert sorted(tuple(row[1:]) for row in whole if row[2] == 2) == [(-1, 2, 0, 5), (1, 2, 1, 5)]
    first = shop.lake.sql(f"SUBSCRIBE (SELECT id, c FROM shop.orders) AS OF {at} UP TO {at + 1}").rows
    assert sorted(row[2:] for row in first) == [(i, 5) for i in range(1, 5)]


def test_a_table_waits_while_its_database_cannot_be_asked_about_a_new_column_and_others_continue(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.upstream("orders", "others", rows=2)
    shop.lake.sql(f"BEGIN; {shop.creating('orders')}; {shop.creating('others')}; COMMIT")
    shop.follow_until_equal("orders", "others")
    shop.database.execute("ALTER TABLE orders ADD c int DEFAULT 5", "INSERT INTO orders (id, n) VALUES (3, 0)")
    shop.database.execute("INSERT INTO others (id, n) VALUES (3, 0)")
    with monkeypatch.context() as down:

        def unanswered(*_: object) -> None:
            raise UpstreamUnavailable("PostgreSQL does not answer")

        down.setattr(PostgresUpstream, "initial_values", unanswered)
        stops: list[LakeholdError] = []

        def others_are_equal() -> bool:
            stops.extend(stop for report in shop.lake.ingest("shop") for stop in report.stopped.values())
            return bool(stops) and shop.rows("others") == shop.wanted("others")

        wait_for(others_are_equal, "the other table continues")
        assert {stop.code for stop in stops} == {"initial-unknown"}
        assert "PostgreSQL does not answer" in stops[0].detail
        assert len(shop.rows("orders")) == 2
    wait_for(lambda: shop.lake.ingest("shop") is not None and len(shop.rows("orders")) == 3, "the table continues")
    assert _rows(shop.lake, "id, c") == [(1, 5), (2, 5), (3, 5)]


def test_older_rows_have_their_values_though_a_default_is_dropped_before_the_first_message(shop: Shop) -> None:
    """Drop what gave older rows their values, some time after it wrote them and before any message has the column."""
    added = {
        "tokens": ["ALTER TABLE tokens ADD c uuid DEFAULT gen_random_uuid()"],
        "computed": ["ALTER TABLE computed ADD c int GENERATED ALWAYS AS (id * 2) STORED"],
        "vacuumed": ["ALTER TABLE vacuumed ADD c int DEFAULT 5", "VACUUM FULL vacuumed"],
        "kept": ["ALTER TABLE kept ADD c int DEFAULT 5", "ALTER TABLE kept ALTER c DROP DEFAULT"],
    }
    dropped = {
        "tokens": ["ALTER TABLE tokens ALTER c DROP DEFAULT"],
        "computed": ["ALTER TABLE computed ALTER c DROP EXPRESSION", "ALTER TABLE computed RENAME c TO d"],
        "vacuumed": ["ALTER TABLE vacuumed ALTER c DROP DEFAULT"],
        "kept": ["VACUUM FULL kept"],
        "at_once": [
            "ALTER TABLE at_once ADD c int DEFAULT 5",
            "ALTER TABLE at_once ALTER c DROP DEFAULT",
            "VACUUM FULL at_once",
        ],
    }
    shop.upstream(*dropped, rows=4)
    shop.lake.sql(f"BEGIN; {'; '.join(shop.creating(table) for table in dropped)}; COMMIT")
    shop.follow_until_equal(*dropped)
    address = shop.database.addresses.postgres(shop.database.name)
    with psycopg.connect(address, autocommit=True) as connection:
        for statements in (added, dropped):
            for statement in (each for of_table in statements.values() for each in of_table):
                connection.execute(statement.encode())
            shop.lake.sql("ALTER SOURCE shop REPAIR")
        for table in dropped:
            connection.execute(f"UPDATE {table} SET n = 1 WHERE id = 1".encode())
    columns = {table: "d" if table == "computed" else "c" for table in dropped}

    def filled() -> dict[str, int]:
        list(shop.lake.ingest("shop"))
        return {table: _filled(shop, table, column) for table, column in columns.items()}

    wait_for(lambda: filled() == dict.fromkeys(dropped, 4), "all rows have their values")
    assert all(shop.lake.verify(f"shop.{table}").is_equal for table in dropped)


@VALUE_FORMATS
def test_a_renamed_column_is_the_same_column_with_its_history(
    make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch, value_format: str
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(make_lake, database, value_format)
    shop.upstream("orders", rows=4)
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")
    shop.follow_until_readable("orders")
    at = shop.lake.sql("SUBSCRIBE TO shop.orders WITH (SNAPSHOT)").rows[0][0]
    version = _state(shop).snapshot_id
    assert _fields(shop) == {"id": 1, "n": 2, "note": 3}

    long = "x" * 10_000
    database.execute("UPDATE orders SET note = 'by its first name' WHERE id = 1")
    execute(
        database,
        ["ALTER TABLE orders ALTER note SET STORAGE EXTERNAL", f"UPDATE orders SET note = '{long}' WHERE id = 4"],
    )
    database.execute("ALTER TABLE orders RENAME note TO remark", "ALTER TABLE orders ADD c int DEFAULT 5")
    database.execute(
        "UPDATE orders SET remark = 'by its second name' WHERE id = 2", "UPDATE orders SET n = 9 WHERE id = 4"
    )
    wait_for(lambda: len(shop.sent_ms("orders")) == 8, "all messages were sent")
    wait_for(
        lambda: shop.lake.ingest("shop") is not None and "remark" in _fields(shop), "the column has its second name"
    )
    assert _fields(shop) == {"id": 1, "n": 2, "remark": 3, "c": 4}
    assert _rows(shop.lake, "id, n, remark, c") == [
        (1, 0, "by its first name", 5),
        (2, 0, "by its second name", 5),
        (3, 0, "orders", 5),
        (4, 9, long, 5),
    ]
    diffs = shop.lake.sql(f"SUBSCRIBE (SELECT id, remark FROM shop.orders) WITH (SNAPSHOT = false) AS OF {at}").rows
    assert sorted(row[2] for row in diffs) == [1, 1, 2, 2, 4, 4]
    assert (-1, 1, "orders") in [tuple(row[1:]) for row in diffs]
    assert _rows(shop.lake, "id, note", f"orders VERSION AS OF {version}")[0] == (
        1,
        "orders",
    )

    database.execute("ALTER TABLE orders RENAME remark TO memo", "ALTER TABLE orders ADD note text DEFAULT 'another'")
    database.execute("UPDATE orders SET memo = 'by its third name' WHERE id = 3")
    wait_for(lambda: shop.lake.ingest("shop") is not None and "memo" in _fields(shop), "the column has its third name")
    assert _fields(shop) == {"id": 1, "n": 2, "memo": 3, "c": 4, "note": 5}
    assert _rows(shop.lake, "id, memo, note")[1:3] == [
        (2, "by its second name", "another"),
        (3, "by its third name", "another"),
    ]
    database.execute("INSERT INTO orders (id, memo, note) VALUES (5, 'm', 'n')")
    _follow(shop, 5)
    assert _fields(shop) == {"id": 1, "n": 2, "memo": 3, "c": 4, "note": 5}
    assert _rows(shop.lake, "id, memo, note")[4] == (5, "m", "n")
    shop.close()


def _fields(shop: Shop) -> dict[str, int]:
    return {field.name: field.field_id for field in _state(shop).schema.fields}


def _state(shop: Shop) -> TableState:
    state = shop.lake.tables.table_state("shop.orders")
    assert state is not None
    return state


@pytest.mark.soak
def test_a_table_without_a_primary_key_says_how_its_new_column_gets_its_values(shop: Shop) -> None:
    created = "CREATE TABLE loose (id int, n int, note text)"
    execute(
        shop.database, [created, "ALTER TABLE loose REPLICA IDENTITY FULL", "INSERT INTO loose VALUES (1, 0), (2, 0)"]
    )
    shop.lake.sql("CREATE TABLE shop.loose FROM SOURCE shop (TABLE 'public.loose') KEY (id) ENVELOPE DEBEZIUM")
    shop.follow_until_equal("loose")
    shop.database.execute(
        "ALTER TABLE loose ADD token uuid DEFAULT gen_random_uuid()", "INSERT INTO loose VALUES (3, 0)"
    )
    _follow(shop, 3, "loose")
    assert _filled(shop, "loose", "token") == 1
    (notice,) = status_of(shop.lake).notices
    assert notice.startswith("source shop: changes of public.loose were missed (")
    assert notice.endswith("it has no primary key, so only ALTER SOURCE shop RESNAPSHOT brings them")
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    wait_for(lambda: shop.lake.ingest("shop") is not None and _filled(shop, "loose", "token") == 3, "all have tokens")
    shop.follow_until_nothing_is_reported()
