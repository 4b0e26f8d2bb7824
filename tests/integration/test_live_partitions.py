"""A captured partitioned table gets partitions of which PostgreSQL logs too little or nothing, and their rows reach the lake."""

from __future__ import annotations

import pytest

from lakehold.errors import UpstreamError
from lakehold.status import status_of
from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.live_source import execute

pytestmark = [pytest.mark.stack, pytest.mark.spark]


def test_partitions_that_log_too_little_are_reported_until_they_are_altered(shop: Shop) -> None:
    execute(
        shop.database,
        [
            "CREATE TABLE parts (id int PRIMARY KEY, n int, note text) PARTITION BY RANGE (id)",
            "ALTER TABLE parts REPLICA IDENTITY FULL",
            "CREATE TABLE first PARTITION OF parts FOR VALUES FROM (0) TO (10)",
            "ALTER TABLE first REPLICA IDENTITY FULL",
            "CREATE UNLOGGED TABLE fast PARTITION OF parts FOR VALUES FROM (10) TO (20)",
            "INSERT INTO parts SELECT i, 0, 'a' FROM generate_series(1, 15) i",
        ],
    )
    with pytest.raises(UpstreamError, match=r'partition "public\.fast" of "public\.parts" is an unlogged table'):
        shop.lake.sql(shop.creating("parts"))
    execute(shop.database, ["DROP TABLE fast"])
    shop.lake.sql(shop.creating("parts"))
    shop.follow_until_equal("parts")
    shop.follow_until_nothing_is_reported()

    execute(
        shop.database,
        [
            "CREATE TABLE later PARTITION OF parts FOR VALUES FROM (10) TO (20)",
            "CREATE UNLOGGED TABLE faster PARTITION OF parts FOR VALUES FROM (20) TO (30)",
            "ALTER TABLE faster REPLICA IDENTITY FULL",
            "INSERT INTO parts SELECT i, 0, 'b' FROM generate_series(11, 25) i",
        ],
    )
    list(shop.lake.ingest("shop"))
    notices = " ".join(status_of(shop.lake).notices)
    ways_out = ["ALTER TABLE public.later REPLICA IDENTITY FULL", "ALTER TABLE public.faster SET LOGGED"]
    assert all(statement in notices for statement in ways_out)
    execute(shop.database, [*ways_out, "UPDATE parts SET n = 1 WHERE id < 20"])
    shop.follow_until_equal("parts")
    shop.follow_until_nothing_is_reported()
