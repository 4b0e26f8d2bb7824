"""The recorded shop: its changes arrive in a new lake, batch by batch, without a server."""

from __future__ import annotations

from pathlib import Path

from lakehold.demo.demo_steps import compare, define, finish, lake_settings, query_tables, subscribe
from lakehold.demo.recording import expected_rows, unpack
from lakehold.demo.screen import Screen
from lakehold.demo.shop_rows import SHOP_TABLES
from lakehold.lake import Lake
from lakehold.session import SHORT_RUN_OPTIONS

_BATCH_RECORDS = 1_000
"""A small batch size, so that the demo shows several batches."""


def run_recorded(screen: Screen, place: Path) -> None:
    """Unpack the recording into `place` and ingest all of it into a lake there.

    Raises:
        LakeholdError: A table stopped, or differs from PostgreSQL.
    """
    messages = unpack(place / "recording")
    screen.line(f"{messages} messages that Debezium wrote about a shop's database are in {place / 'recording'}")
    settings = lake_settings(
        place / "lake",
        max_batch_records=_BATCH_RECORDS,
        schemas="",  # the tables follow the shop's own schema, whatever lies in the working directory
        spark_conf={"spark.driver.extraJavaOptions": SHORT_RUN_OPTIONS},
    )
    with Lake(settings) as lake:
        define(screen, lake, place / "shop.sql", "shop.recorded.sql", recording=str(place / "recording"))
        with screen.waiting("starting Spark"):
            _ = lake.spark
        screen.heading("lakehold ingest shop")
        for report in lake.ingest("shop", on_batch=screen.batch):
            for error in report.stopped.values():
                raise error
        query_tables(screen, lake)
        compare(screen, lake, {table: expected_rows(table) for table in SHOP_TABLES})
        subscribe(screen, lake)
        finish(screen, lake)
