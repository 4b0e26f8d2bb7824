"""A table is created again after an ingest was killed while it caught up: nothing of the old table is left."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lakehold.model.readers import BACKFILL_READER, MAIN_READER
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.lakehold_process import IngestProcesses
from tests.numbered_shop import BATCH, NumberedShop
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

LEASE_MS = 2_000


@pytest.mark.parametrize("point", ["after-intent", "after-merge"])
def test_a_table_is_created_again_after_a_kill(
    make_lake: LakeFactory, spark_connect: str, tmp_path: Path, point: str
) -> None:
    warehouse = tmp_path / "lake"
    shop = NumberedShop(make_lake(warehouse, max_batch_records=BATCH, buckets=2), tmp_path / "topics")
    shop.table("first", "orders")
    shop.write("orders", 2 * BATCH)
    shop.write("items", 2 * BATCH)
    shop.lake.ingest("shop")
    shop.table("again", "orders")
    shop.table("items", "items")
    shop.table("third", "orders")
    settings: dict[str, str | int] = {
        "max_batch_records": BATCH,
        "lease_ms": LEASE_MS,
        "lease_renew_ms": 500,
        "buckets": 2,
        "catalog_name": shop.lake.settings.catalog_name,
        "spark_remote": spark_connect,
    }
    processes = IngestProcesses(warehouse, "shop", settings)
    code, output = processes.run(kill_at=point)
    assert code == -signal.SIGKILL, output
    reader = shop.lake.batches.readers("shop")[BACKFILL_READER]
    assert reader.intent is not None

    for name, topic in (("again", "orders"), ("items", "items")):
        shop.lake.sql(f"DROP TABLE s.{name}")
        shop.table(name, topic)
    wait_for(lambda: reader.lease is None or reader.lease.until_ms <= now_ms(), within_s=10)
    reports = shop.lake.ingest("shop")
    assert reports[0].timestamp_ms == reader.intent.mz_timestamp
    assert shop.readers() == {MAIN_READER: {"s.first", "s.again", "s.items", "s.third"}}
    assert {shop.rows(name) for name in ("first", "again", "items", "third")} == {2 * BATCH}
