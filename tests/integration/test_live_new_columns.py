"""A column that is added upstream with a default has the same values in the lake, in rows that no message is about."""

from __future__ import annotations

from typing import Any

import pytest

from lakehold.lake import Lake
from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.conftest import LakeFactory
from tests.live_source import execute
from tests.stack_fixtures import SourceDatabase
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

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
}
"""Columns whose default PostgreSQL keeps beside the column."""


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


@pytest.mark.parametrize("value_format", ["FORMAT JSON", "FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry"])
def test_rows_older_than_a_column_have_what_a_message_with_its_default_has(
    make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch, value_format: str
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(make_lake, database, value_format)
    shop.upstream("orders", rows=3)
    execute(database, ["CREATE TYPE mood AS ENUM ('happy', 'so so')", "CREATE DOMAIN price AS numeric(9, 3)"])
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")

    added = ", ".join(f"ADD {name} {kind}" for name, kind in _TYPES.items())
    # The first row is old, and the second too: its message comes in the batch that brings the columns.
    database.execute("UPDATE orders SET n = 1 WHERE id = 2")
    execute(database, [f"ALTER TABLE orders {added}", "INSERT INTO orders (id, n, note) VALUES (4, 0, 'new')"])
    _follow(shop, 4)
    asked = shop.events("orders")
    names = ", ".join(f"CAST({name} AS STRING) AS {name}" if name != "raw" else "hex(raw)" for name in _TYPES)
    first, second, third, sent = _rows(shop.lake, f"id, n, {names}")
    assert (first[0], second[:2], sent[0]) == (1, (2, 1), 4)
    different = {n: (f, s) for n, f, s in zip(_TYPES, first[2:], sent[2:], strict=True) if f != s}
    assert different == {}
    assert None not in first
    assert second[2:] == first[2:] == third[2:]
    schema = shop.lake.tables.table_state("shop.orders").schema
    assert all(schema.find_field(name).initial_default is not None for name in _TYPES)
    assert sum(asked.values()) == 5, "nothing was snapshotted again"
    shop.close()
