"""Another program's commit comes between the moment at which Spark reads a table to change its columns, and Spark's commit."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehold.lake import Lake
from tests import debezium_shop
from tests.conftest import LakeFactory
from tests.debezium_messages import Topic
from tests.debezium_shop import row
from tests.materialized_views import assert_equal_at_every_timestamp
from tests.published_shop import Shop
from tests.waiting import wait_for

pytestmark = pytest.mark.spark


class Interruption:
    """A commit of another program to a table, which comes before Spark's next one that changes the table's columns."""

    def __init__(self, lake: Lake, table: str) -> None:
        self.lake, self.table, self.done = lake, table, False

    @contextmanager
    def before(self, statement: str) -> Iterator[None]:
        """Let Spark read the table, and not commit to it until the other program has."""
        if self.done or "COLUMN" not in statement or self.table.split(".")[1] not in statement:
            yield
            return
        self.done = True
        database = self.lake.catalog.engine.url.database  # type: ignore[attr-defined]
        with closing(sqlite3.connect(database, isolation_level=None, check_same_thread=False)) as catalog:
            catalog.execute("BEGIN IMMEDIATE")
            other = threading.Thread(target=self._commit, args=(catalog,))
            other.start()
            try:
                yield
            finally:
                other.join()

    def _commit(self, catalog: sqlite3.Connection) -> None:
        namespace, name = self.table.split(".")
        where = f"table_namespace = '{namespace}' AND table_name = '{name}'"
        ((now,),) = catalog.execute(f"SELECT metadata_location FROM iceberg_tables WHERE {where}").fetchall()
        path, _, version = now.rpartition("/")
        directory = Path(path.removeprefix("file:"))
        before = {*directory.iterdir()}
        # Spark has written what it is about to commit.
        wait_for(lambda: any(".metadata.json" in new.name for new in {*directory.iterdir()} - before))
        theirs = f"{path}/{version.replace('-', '-0', 1)}"
        shutil.copy(now.removeprefix("file:"), theirs.removeprefix("file:"))
        catalog.execute(
            f"UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? WHERE {where}",
            (theirs, now),
        )
        catalog.execute("COMMIT")


@contextmanager
def interrupted(lake: Lake, table: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let another program commit to `table` while its columns are changed inside."""
    interruption, sessions = Interruption(lake, table), type(lake.spark)
    run = sessions.sql

    def sql(self: SparkSession, text: str, *args: Any, **options: Any) -> Any:
        with interruption.before(text):
            return run(self, text, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(sessions, "sql", sql)
        yield
    assert interruption.done


def columns(lake: Lake, name: str) -> dict[str, str]:
    return {field.name: str(field.field_type) for field in lake.catalog.load_table(name).schema().fields}


def test_a_table_follows_its_columns(make_lake: LakeFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, topic = debezium_shop.Shop(make_lake(), tmp_path / "topics"), Topic("t", dict(debezium_shop.COLUMNS))
    shop.table(topic, "DEBEZIUM")
    topic.snapshot([row(1)])
    shop.ingest(topic)
    topic.columns |= {"n": {"type": "int64"}, "more": {"type": "string"}}
    topic.create({**row(2), "n": 3_000_000_000, "more": "m"})
    with interrupted(shop.lake, "s.t", monkeypatch):
        assert shop.stopped(topic) == {}
    assert shop.rows() == [(1, "a", 0, None), (2, "a", 3_000_000_000, "m")]


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    made = Shop(make_lake)
    made.write((1, "a"))
    return made


def widen(lake: Lake) -> None:
    lake.sql("ALTER TABLE shop.t ADD COLUMN price INT; INSERT INTO shop.t VALUES (2, 'b', 5)")


def test_a_view_follows_its_query(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = shop.lake
    lake.sql("CREATE MATERIALIZED VIEW bi.seen KEY (id) AS SELECT * FROM shop.t")
    lake.publish("bi.seen")
    widen(lake)
    with interrupted(lake, "bi.seen", monkeypatch):
        lake.publish("bi.seen")
    assert columns(lake, "bi.seen") == {"id": "long", "v": "string", "price": "int"}
    assert_equal_at_every_timestamp(lake, "bi.seen", "SELECT * FROM shop.t")


def test_a_history_follows_its_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = shop.lake
    shop.subscribe("ENVELOPE HISTORY (KEY (id))", into="bi.ranges")
    lake.publish("s")
    widen(lake)
    with interrupted(lake, "bi.ranges", monkeypatch):
        lake.publish("s")
    assert columns(lake, "bi.ranges")["price"] == "int"
    assert lake.sql("SELECT id, price FROM bi.ranges WHERE is_current ORDER BY id").rows == [(1, None), (2, 5)]
