"""Settings of a live PostgreSQL by which its log has too little of a row, or other values: lakehold refuses or names them."""

from __future__ import annotations

from typing import Any

import pytest

from lakehold.errors import UpstreamError
from lakehold.status import status_of
from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.live_source import execute
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def test_deletes_that_are_logged_without_the_key_are_named_and_come_with_a_snapshot(shop: Shop) -> None:
    by_code = "ALTER TABLE {0} REPLICA IDENTITY USING INDEX {0}_n_key"
    for table in ("codes", "others"):
        execute(
            shop.database,
            [
                f"CREATE TABLE {table} (id int PRIMARY KEY, n int NOT NULL UNIQUE, note text)",
                f"INSERT INTO {table} SELECT i, i, 'x' FROM generate_series(0, 3) i",
            ],
        )
    execute(shop.database, [by_code.format("others")])
    shop.lake.sql(shop.creating("codes", "DEBEZIUM UPSERT"))
    shop.follow_until_equal("codes")
    with pytest.raises(UpstreamError, match=r'table "public\.others" logs other columns than the key') as refusal:
        shop.lake.sql(shop.creating("others", "DEBEZIUM UPSERT"))
    assert refusal.value.code == "replica-identity"

    execute(
        shop.database,
        [by_code.format("codes"), "DELETE FROM codes WHERE id = 2", "INSERT INTO codes VALUES (9, 9, 'last')"],
    )

    def is_last_there() -> bool:
        list(shop.lake.ingest("shop"))
        return (9, 9, "last") in shop.rows("codes")

    wait_for(is_last_there, "the last row arrives")
    assert [id_ for id_, *_ in shop.rows("codes")] == [1, 2, 3, 9], "row 0 is deleted in place of row 2"
    (notice,) = status_of(shop.lake).notices
    assert "deletes of table public.codes are lost, or hit other rows" in notice

    for statement in ("ALTER TABLE public.codes REPLICA IDENTITY FULL", "ALTER SOURCE shop RESNAPSHOT"):
        assert statement in notice
    execute(shop.database, ["ALTER TABLE public.codes REPLICA IDENTITY FULL"])
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.follow_until_equal("codes")
    assert status_of(shop.lake).notices == ()


def test_bytes_that_are_logged_as_text_are_named_and_come_with_a_snapshot(shop: Shop) -> None:
    def rows(table: str) -> list[tuple[Any, ...]]:
        list(shop.lake.ingest("shop"))
        return sorted(tuple(row) for row in shop.lake.sql(f"SELECT * FROM {lake}.shop.{table}").rows)

    lake, database = shop.lake.settings.catalog_name, shop.database.name
    execute(
        shop.database,
        [
            f"ALTER DATABASE {database} SET bytea_output = 'escape'",
            "CREATE TABLE blobs (id int PRIMARY KEY, data bytea)",
            "INSERT INTO blobs VALUES (1, 'a'), (2, 'b')",
        ],
    )
    with pytest.raises(UpstreamError, match=r'column "data" of table "public\.blobs"') as refusal:
        shop.lake.sql(shop.creating("blobs", "DEBEZIUM UPSERT"))
    set_hex = refusal.value.hint.removesuffix(".")
    role = set_hex.partition(" SET ")[0]
    execute(shop.database, [set_hex])
    shop.lake.sql(shop.creating("blobs", "DEBEZIUM UPSERT"))
    shop.follow_until_readable("blobs")
    assert rows("blobs") == [(1, b"a"), (2, b"b")]

    execute(shop.database, [f"{role} SET bytea_output = 'escape'"])
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    wait_for(lambda: bool(rows("blobs")) and shop.state("blobs") == "live", "the snapshot is read")
    execute(shop.database, ["INSERT INTO blobs VALUES (3, 'ab')"])
    wait_for(lambda: len(rows("blobs")) == 3, "the last row arrives")
    assert rows("blobs")[-1] != (3, b"ab")
    (notice,) = status_of(shop.lake).notices
    assert notice.endswith(f"{set_hex}; then ALTER SOURCE shop RESNAPSHOT")
    execute(shop.database, [set_hex])
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    wait_for(lambda: rows("blobs") == [(1, b"a"), (2, b"b"), (3, b"ab")], "the snapshot has the bytes")
    assert status_of(shop.lake).notices == ()
    execute(shop.database, [f"{role} RESET bytea_output"])
