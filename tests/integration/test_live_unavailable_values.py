"""Large values that PostgreSQL does not send reach the lake, also if an update changes the key of their row."""

from __future__ import annotations

import re

import pytest

from lakehold.errors import UpstreamError
from lakehold.ingest.decode.placeholder import PLACEHOLDER
from lakehold.status import status_of
from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.live_source import execute
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_OF_EACH = "(SELECT array_agg({}) FROM generate_series(1, 900) i)"
_POINTS = "(SELECT string_agg('(1,' || i || ')', ',') FROM generate_series(1, 900) i)"
_COLUMNS = {
    **{
        f"{name} {kind}[]": _OF_EACH.format(f"({value})::{kind}")
        for name, kind, value in (
            ("smalls", "smallint", "i"),
            ("ints", "int", "i"),
            ("bigs", "bigint", "i"),
            ("objects", "oid", "i"),
            ("doubles", "float8", "i"),
            ("floats", "float4", "i"),
            ("amounts", "numeric(12,2)", "i"),
            ("moments", "timestamp", "now()"),
            ("instants", "timestamptz", "now()"),
            ("days", "date", "now()"),
            ("times", "time", "now()"),
            ("moods", "mood", "'happy'"),
            ("counts", "count_of", "i"),
            ("addresses", "inet", "'10.0.0.1'"),
            ("ranges", "int4range", "'[1,2)'"),
            ("cases", "citext", "i"),
            ("maps", "hstore", "'a=>b'"),
            ("texts", "text", "i"),
            ("names", "varchar(9)", "i"),
            ("codes", "char(9)", "i"),
            ("documents", "jsonb", "'{\"a\":1}'"),
            ("pictures", "bytea", "'abcd'"),
            ("tokens", "uuid", "md5(i::text)"),
        )
    },
    "flags boolean[]": "array_fill(true, ARRAY[3000])",
    "line path": f"('[' || {_POINTS} || ']')::path",
    "area polygon": f"('(' || {_POINTS} || ')')::polygon",
    "mask bit varying": "repeat('10', 9000)::bit varying",
    "body text": "repeat('body', 3000)",
    "raw bytea": "decode(repeat('00ff', 3000), 'hex')",
    "document jsonb": "to_jsonb(repeat('json', 3000))",
    "pairs hstore": "hstore('a', repeat('b', 3000))",
    "words tsvector": "(SELECT to_tsvector(string_agg('w' || i, ' ')) FROM generate_series(1, 900) i)",
    "several int4multirange": "(SELECT range_agg(int4range(i * 10, i * 10 + 2)) FROM generate_series(1, 900) i)",
}
"""Columns whose values PostgreSQL stores outside of the row, each with a value."""
_NAMED = re.compile(r"(\w+) \(")
"""A column in a message, before its type."""


def test_a_row_that_gets_another_key_has_its_large_value(shop: Shop) -> None:
    for table, identity in (("whole", "FULL"), ("papers", "DEFAULT")):
        execute(
            shop.database,
            [
                f"CREATE TABLE {table} (id int PRIMARY KEY, n int, note text)",
                f"ALTER TABLE {table} ALTER note SET STORAGE EXTERNAL, REPLICA IDENTITY {identity}",
                f"INSERT INTO {table} SELECT i, 0, repeat(i::text, 10000) FROM generate_series(1, 4) i",
            ],
        )
    envelope = "DEBEZIUM UPSERT"
    shop.lake.sql(f"BEGIN; {shop.creating('whole')}; {shop.creating('papers', envelope)}; COMMIT")
    shop.follow_until_equal("whole", "papers")
    execute(shop.database, [f"UPDATE {table} SET id = 5 WHERE id = 4" for table in ("whole", "papers")])
    for table in ("whole", "papers"):
        shop.wait_for_events(table, {"r": 4, "d": 1, "c": 1})
    sent = {table: [*shop.connector.values(f"public.{table}")][-1]["payload"]["after"] for table in ("whole", "papers")}
    assert (sent["whole"]["note"] == "4" * 10_000, sent["papers"]["note"]) == (True, PLACEHOLDER)
    list(shop.lake.ingest("shop"))
    assert (5, 0, None) in shop.rows("papers")
    assert [notice for notice in status_of(shop.lake).notices if "public.papers" in notice]
    shop.follow_until_equal("whole", "papers")
    shop.follow_until_nothing_is_reported()
    assert shop.events("whole") == {"r": 4, "d": 1, "c": 1}
    assert shop.events("papers")["ad hoc"] > 0


def test_large_values_that_would_arrive_as_null_are_refused_or_named(shop: Shop) -> None:
    names = [column.split()[0] for column in _COLUMNS]
    execute(
        shop.database,
        [
            *(f"CREATE EXTENSION {name}" for name in ("citext", "hstore")),
            "CREATE TYPE mood AS ENUM ('happy', 'sad')",
            "CREATE DOMAIN count_of AS int",
            f"CREATE TABLE wide (id int PRIMARY KEY, n int, {', '.join(_COLUMNS)})",
            *(f"ALTER TABLE wide ALTER {name} SET STORAGE EXTERNAL" for name in names),
            f"INSERT INTO wide SELECT 1, 0, {', '.join(_COLUMNS.values())}",
        ],
    )
    creating = shop.creating("wide", "DEBEZIUM UPSERT")
    with pytest.raises(UpstreamError, match=r'table "public\.wide" would lose large values of smalls \(') as refused:
        shop.lake.sql(creating)
    assert refused.value.code == "replica-identity"
    full = "ALTER TABLE public.wide REPLICA IDENTITY FULL"
    assert full in refused.value.hint
    execute(shop.database, [full])
    shop.lake.sql(creating)
    shop.wait_for_events("wide", {"r": 1})
    execute(shop.database, ["UPDATE wide SET n = 1"])
    shop.wait_for_events("wide", {"r": 1, "u": 1})
    list(shop.lake.ingest("shop"))
    in_lake = f"SELECT n, {', '.join(names)} FROM {shop.lake.settings.catalog_name}.shop.wide"
    (row,) = shop.lake.sql(in_lake).rows
    assert (row[0], [name for name, value in zip(names, row[1:], strict=True) if value is None]) == (1, [])

    # As if somebody changed the setting later: what is named is what arrives as null.
    execute(shop.database, ["ALTER TABLE wide REPLICA IDENTITY DEFAULT"])
    execute(shop.database, ["UPDATE wide SET n = 2"])
    shop.wait_for_events("wide", {"r": 1, "u": 2})
    sent = [*shop.connector.values("public.wide")][-1]["payload"]["after"]
    nulls = {name for name in names if sent[name] is None}
    assert {*_NAMED.findall(refused.value.message)} == nulls
    list(shop.lake.ingest("shop"))
    (notice,) = status_of(shop.lake).notices
    assert {*_NAMED.findall(notice.partition("become null")[0])} == nulls

    execute(shop.database, [full])
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")

    def is_whole() -> bool:
        list(shop.lake.ingest("shop"))
        return None not in shop.lake.sql(in_lake).rows[0]

    wait_for(is_whole, "the snapshot brings the values")
    assert status_of(shop.lake).notices == ()
