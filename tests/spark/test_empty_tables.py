"""A table that is empty upstream is an empty table for every reader, and takes its first row like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakehold.lake import Lake
from lakehold.status import COLUMNS, status_of
from tests.transaction_files import Connector, define

pytestmark = pytest.mark.spark

TABLES = {"a": "DEBEZIUM", "empty": "DEBEZIUM", "latest": "UPSERT"}


@pytest.fixture
def connector(lake: Lake, tmp_path: Path) -> Connector:
    """Define a source whose tables `empty` and `latest` get no message; a transaction shows that the snapshot is over."""
    define(lake, tmp_path / "topics", TABLES)
    connector = Connector(tmp_path / "topics")
    connector.snapshot("a", [(1, 1)])
    connector.transaction(("a", 1, 2))
    lake.ingest("shop")
    return connector


@pytest.mark.parametrize("name", ["empty", "latest"])
def test_every_reader_reads_no_rows(lake: Lake, connector: Connector, name: str) -> None:  # noqa: ARG001
    table, line = f"shop.{name}", lake.timelines.of([f"shop.{name}"])[f"shop.{name}"]
    selected = lake.sql(f"SELECT * FROM {table}")
    assert (selected.columns, selected.rows) == (("id", "v"), [])
    assert lake.sql(f"SELECT count(*) FROM {table} AS OF {line.since_ms}").rows == [(0,)]
    rows = lake.sql(f"SUBSCRIBE {table} WITH (PROGRESS) AS OF {line.since_ms} UP TO {line.upper_ms}").rows
    assert tuple(rows[0][:2]) == (line.since_ms, True)
    assert all(progressed for _, progressed, *_ in rows)
    lake.sql(f"CREATE HOLD h ON {table}")
    assert lake.sql("SELECT at FROM mz_catalog.mz_holds").rows == [(line.since_ms,)]
    lake.sql(f"CREATE SUBSCRIPTION copy INTO out.copy AS SUBSCRIBE {table} ENVELOPE UPSERT (KEY (id))")
    lake.publish("copy")
    (row,) = (row for row in status_of(lake).rows if row[COLUMNS.index("table")] == table)
    assert row[COLUMNS.index("rows")] == 0
    assert row[COLUMNS.index("state")] == "live"


def test_the_first_row_of_an_empty_table_is_a_change_of_it(lake: Lake, connector: Connector) -> None:
    since_ms = lake.timelines.of(["shop.empty"])["shop.empty"].since_ms
    connector.transaction(("empty", 7, 70), ("a", 1, 3))
    lake.ingest("shop")
    line = lake.timelines.of(["shop.empty"])["shop.empty"]
    assert line.since_ms == since_ms
    assert lake.sql(f"SELECT count(*) FROM shop.empty AS OF {since_ms}").rows == [(0,)]
    changes = lake.sql(f"SUBSCRIBE shop.empty AS OF {since_ms} UP TO {line.upper_ms}").rows
    assert [row[1:] for row in changes] == [(1, 7, 70)]
    partitions = lake.catalog.load_table("shop.empty").spec().fields
    assert [field.name for field in partitions] == ["id_bucket"], "the table is bucketed by the key of the messages"
