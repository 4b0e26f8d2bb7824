"""A thread reads a table while another thread of the same lake writes it: it sees only what is published."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehold.lake import Lake
from tests import debezium_shop
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.debezium_shop import row
from tests.published_shop import Shop

pytestmark = pytest.mark.spark

WRITES = ("MERGE", "DELETE", "INSERT", "UPDATE")


@contextmanager
def read_after_each_statement(lake: Lake, query: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Run a query in another thread after each statement that writes, before its result is published; yield the rows."""
    seen: list[Any] = []
    run = SparkSession.sql

    def sql(self: SparkSession, text: str, *args: Any, **options: Any) -> Any:
        made = run(self, text, *args, **options)
        if text.lstrip().startswith(WRITES):
            seen.append(other.submit(lambda: lake.sql(query).rows).result())
        return made

    with ThreadPoolExecutor(1) as other, monkeypatch.context() as patched:
        patched.setattr(SparkSession, "sql", sql)
        yield seen


def test_a_keyless_table_shows_no_part_of_a_batch(
    make_lake: LakeFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = debezium_shop.Shop(make_lake(), tmp_path / "topics")
    topic = Topic("t", dict(debezium_shop.COLUMNS), key=(), has_keys=False, has_orders=True)
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1, n=5), row(2, n=7)])
    shop.ingest(topic)
    topic.update(row(1, n=5), row(1, n=6))
    topic.delete(row(2, n=7))
    with read_after_each_statement(shop.lake, "SELECT sum(n) FROM s.t", monkeypatch) as seen:
        shop.ingest(topic)
    assert seen == [[(12,)]] * len(seen)
    assert seen
    assert shop.rows() == [(1, "a", 6)]


def test_a_view_shows_no_part_of_a_timestamp(make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(make_lake)
    shop.write((1, "a"), (2, "b"))
    shop.lake.sql("CREATE MATERIALIZED VIEW bi.named AS SELECT id, v FROM shop.t")
    shop.lake.publish("bi.named")
    shop.write((1, None), (3, "c"), (4, "d"))
    query = "SELECT id FROM bi.named ORDER BY id"
    with read_after_each_statement(shop.lake, query, monkeypatch) as seen:
        shop.lake.publish("bi.named")
    assert seen == [[(1,), (2,)]] * len(seen)
    assert seen
    assert shop.lake.sql(query).rows == [(2,), (3,), (4,)]
