"""Large values that PostgreSQL does not send reach the lake, also if an update changes the key of their row."""

from __future__ import annotations

import pytest

from lakehold.ingest.decode.placeholder import PLACEHOLDER
from lakehold.status import status_of
from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.live_source import execute

pytestmark = [pytest.mark.stack, pytest.mark.spark]


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
