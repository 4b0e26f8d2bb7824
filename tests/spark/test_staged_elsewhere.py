"""Rows reach their table although others stage commits in the same session, or in the one that a session is cloned from."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakehold.lake import Lake
from lakehold.session import configured
from tests.client_program import output_of
from tests.debezium_messages import Topic
from tests.debezium_shop import COLUMNS, row
from tests.debezium_shop import Shop as DebeziumShop
from tests.recorded_files import append, line
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

CLONING_CLIENT = """
import sys
from threading import Event, Thread
from lakehold.lake import connect
from lakehold.other_sessions import another_session
from lakehold.session import configured

warehouse, remote = sys.argv[1:]
with connect(warehouse, spark_remote=remote) as lake:
    spark, ended = lake.spark, Event()

    def stages():
        while not ended.is_set():
            with configured(spark, {"spark.wap.id": "of another thread"}):
                spark.conf.get("spark.wap.id")

    staging = Thread(target=stages)
    staging.start()
    for _ in range(10):
        with another_session(spark, lake.settings) as beside:
            print(beside.conf.get("spark.wap.id", "none"))
    ended.set()
    staging.join()
"""


def test_a_cloned_session_does_not_keep_what_another_thread_stages(spark_connect: str, tmp_path: Path) -> None:
    shown = output_of(CLONING_CLIENT, str(tmp_path / "lake"), spark_connect, cwd=tmp_path)
    assert shown.split() == ["none"] * 10


def test_new_rows_reach_their_table_while_another_thread_stages_in_the_same_session(lake: Lake, tmp_path: Path) -> None:
    shop = Shop(lake, tmp_path)
    shop.sends(1)
    lake.ingest("shop")
    shop.sends(2)
    with ThreadPoolExecutor(1) as threads:
        with configured(lake.spark, {"spark.wap.branch": "of_another_thread"}):
            ingesting = threads.submit(lake.ingest, "shop")
            wait_for(lambda: ingesting.done() or shop.has_intent(), "the batch's intent")
        ingesting.result()
    assert shop.ids() == [1, 2]


@pytest.mark.parametrize("setting", ["spark.wap.branch", "spark.wap.id"])
def test_rows_reach_their_table_although_the_sessions_owner_stages_his_own(
    lake: Lake, tmp_path: Path, setting: str
) -> None:
    shop = Shop(lake, tmp_path)
    shop.sends(1)
    lake.ingest("shop")
    with configured(lake.spark, {setting: "audited"}):
        shop.sends(2)
        lake.ingest("shop")
        shop.sends(1)
        shop.sends(3)
        lake.ingest("shop")
        assert lake.spark.conf.get(setting) == "audited"
    assert shop.ids() == [1, 2, 3]
    assert {*lake.catalog.load_table("s.orders").metadata.refs} == {"main"}


def test_a_keyless_table_that_loses_all_rows_and_gets_others_does_not_stage_them_with_the_sessions_owner(
    lake: Lake, tmp_path: Path
) -> None:
    topic = Topic("t", dict(COLUMNS), key=(), has_keys=False, has_orders=True)
    shop = DebeziumShop(lake, tmp_path / "topics")
    shop.table(topic, "DEBEZIUM", "WITH (TRUNCATE = 'apply')")
    topic.create(row(1))
    assert shop.stopped(topic) == {}
    with configured(lake.spark, {"spark.wap.branch": "audited"}):
        topic.truncate()
        topic.create(row(2), row(3))
        topic.delete(row(3))
        assert shop.stopped(topic) == {}
    assert shop.rows() == [(2, "a", 0)]
    assert {*lake.catalog.load_table("s.t").metadata.refs} == {"main"}


class Shop:
    """A source of files with the table `s.orders`."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self._lake, self._topic, self._offset = lake, directory / "orders.jsonl", 0
        lake.sql(
            f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON;"
            "CREATE TABLE s.orders (id BIGINT) FROM SOURCE shop (TOPIC 'orders') KEY (id) ENVELOPE UPSERT"
        )

    def sends(self, number: int) -> None:
        """Send the row with this id."""
        row = json.dumps({"id": number}).encode()
        append(self._topic, [line("orders", 0, self._offset, row, row)])
        self._offset += 1

    def has_intent(self) -> bool:
        """Return whether a batch is under way."""
        return any(batch.intent is not None for batch in self._lake.batches.readers("shop").values())

    def ids(self) -> list[int]:
        """Return the ids in the table."""
        return sorted(id for (id,) in self._lake.sql("SELECT id FROM s.orders").rows)
