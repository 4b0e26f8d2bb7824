"""Other engines read the rows that lakehold shows: the table of `docs/reference/readers.md`, and the blocks of that page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import Table

from lakehold.iceberg.properties import spark_catalog_conf
from lakehold.lake import Lake
from lakehold.session import EXTENSION
from lakehold.settings import load_settings
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.doc_pages import page, section, table_rows
from tests.runnable_pages import parts
from tests.spark_connect import free_port

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("jvm")]

PAGE = page("reference/readers.md")
MARKED = [part for part in parts(PAGE) if part.note == "tests/spark/test_readers.py"]
TABLES = ("shop.orders", "shop.of_version_2", "bi.order_changes", "bi.totals")
HELD = TABLES[:2]
VERSIONS = {
    "Spark SQL": "pyspark",
    "Spark Thrift server, over JDBC": "pyspark",
    "PyIceberg, to Arrow": "pyiceberg",
    "PyIceberg, to pandas": "pandas",
    "PyIceberg, to Polars": "polars",
    "DuckDB": "duckdb",
}
TAG = "hold_week"

Rows = list[tuple[str | None, ...]]
Reader = Callable[[str, str | None], Iterable[Iterable[Any]]]


@pytest.fixture
def lake(make_lake: LakeFactory, tmp_path: Path) -> Lake:
    """Make the page's shop, with a change and a delete since the hold, and a table of format version 2 beside."""
    lake, topic = make_lake(tmp_path / "lake"), tmp_path / "messages" / "t.jsonl"
    topic.parent.mkdir()
    lake.sql(f"CREATE SOURCE shop FROM FILES '{topic.parent}' FORMAT JSON")
    for name, options in (("orders", ""), ("of_version_2", "WITH (FORMAT VERSION = 2, PARTITIONED BY (month(day)))")):
        columns = "(id BIGINT, status STRING, day DATE, total INT)"
        lake.sql(f"CREATE TABLE shop.{name} {columns} FROM SOURCE shop (TOPIC 't') ENVELOPE UPSERT {options}")
    first = [{"id": id_, "status": "placed", "day": f"2024-0{id_}-01", "total": 10 * id_} for id_ in (1, 2, 3)]
    changed = [{**first[0], "status": "paid", "day": "2024-05-01"}, None, {**first[2], "id": 4, "day": None}]
    messages = [*enumerate(first, 1), (1, changed[0]), (2, changed[1]), (4, changed[2])]
    lines = [
        recorded_files.line("t", 0, offset, json.dumps(row).encode() if row else None, json.dumps({"id": id_}).encode())
        for offset, (id_, row) in enumerate(messages)
    ]
    recorded_files.append(topic, lines[:3])
    lake.ingest("shop")
    lake.sql("CREATE HOLD week ON shop.orders, shop.of_version_2")
    lake.sql("CREATE SUBSCRIPTION c INTO bi.order_changes AS SUBSCRIBE shop.orders ENVELOPE UPSERT (KEY (id))")
    query = "SELECT status, sum(total) AS total FROM shop.orders GROUP BY status"
    lake.sql(f"CREATE MATERIALIZED VIEW bi.totals KEY (status) AS {query}")
    for name in ("c", "bi.totals"):
        lake.publish(name)
    recorded_files.append(topic, lines[3:])
    lake.ingest("shop")
    for name in ("c", "bi.totals"):
        lake.publish(name)
    return lake


def test_every_reader_of_the_page_shows_the_rows_of_the_lake(
    lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = {cells[0]: list(cells[1:]) for cells in table_rows(section(PAGE, "## What works"))}
    assert lake.catalog.load_table("shop.orders").inspect.delete_files().num_rows > 0
    with jdbc(lake) as of_jdbc:
        readers: Mapping[str, Reader] = {
            "Spark SQL": lambda name, tag: lake.spark.sql(query(lake, name, tag)).collect(),
            "Spark Thrift server, over JDBC": lambda name, tag: of_jdbc(query(lake, name, tag)),
            "PyIceberg, to Arrow": lambda name, tag: arrow_rows(scan(lake, name, tag).to_arrow()),
            "PyIceberg, to pandas": lambda name, tag: arrow_rows(pa.table(scan(lake, name, tag).to_pandas())),
            "PyIceberg, to Polars": lambda name, tag: scan(lake, name, tag).to_polars().rows(),
            "DuckDB": lambda name, tag: by_duckdb(lake.catalog.load_table(name), tag),
        }
        expected = {name: plain(lake.sql(f"SELECT * FROM {name}").rows) for name in TABLES}
        held = plain(
            [(1, "placed", "2024-01-01", 10), (2, "placed", "2024-02-01", 20), (3, "placed", "2024-03-01", 30)]
        )
        for reader, read in readers.items():
            assert {name: plain(read(name, None)) for name in TABLES} == expected, reader
            assert {name: plain(read(name, TAG)) for name in HELD} == dict.fromkeys(HELD, held), reader
            assert listed[reader] == [version(VERSIONS[reader]), *["tested"] * 5]
    assert {cell for name, cells in listed.items() if name not in readers for cell in cells[1:]}.isdisjoint({"tested"})
    capsys.readouterr()
    run_duckdb_block(lake, monkeypatch)
    now, then = capsys.readouterr().out.splitlines()
    assert now == "[(1, 'paid'), (3, 'placed'), (4, 'placed')]"
    assert then == "[(1, 'placed'), (2, 'placed'), (3, 'placed')]"


def test_the_properties_of_the_page_are_those_of_a_lake() -> None:
    (block,) = [part.text for part in MARKED if part.kind == "properties"]
    properties = dict(line.split() for line in block.splitlines())
    assert properties == {
        "spark.sql.extensions": EXTENSION,
        **spark_catalog_conf(load_settings(warehouse="/data/lake")),
    }


def run_duckdb_block(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the page's program, with DuckDB's extensions from packages: tests do not reach DuckDB's repository."""
    (block,) = [part.text for part in MARKED if part.kind == "python"]
    installed = "\n".join(f"connection.execute({text!r})" for text in loading())
    code = block.replace('connection.execute("INSTALL iceberg")\nconnection.execute("LOAD iceberg")', installed)
    assert code != block
    monkeypatch.setattr("lakehold.connect", lambda _: lake)
    exec(code.replace("duckdb.connect()", f"duckdb.connect(config={UNSIGNED})"), {})


UNSIGNED: dict[str, Any] = {"allow_unsigned_extensions": "true"}


def loading() -> Iterator[str]:
    """Yield the statements that load DuckDB's extensions as packages bring them."""
    for name in ("avro", "iceberg"):
        folder = Path(import_module(f"duckdb_extension_{name}").__file__ or "").parent
        (extension,) = folder.glob(f"extensions/*/{name}.duckdb_extension")
        yield f"LOAD '{extension}'"


def query(lake: Lake, name: str, tag: str | None) -> str:
    return f"SELECT * FROM {lake.settings.catalog_name}.{name}" + (f" VERSION AS OF '{tag}'" if tag else "")


def scan(lake: Lake, name: str, tag: str | None) -> Any:
    table = lake.catalog.load_table(name)
    return table.scan(snapshot_id=table.refs()[tag].snapshot_id if tag else None)


def by_duckdb(table: Table, tag: str | None) -> list[tuple[Any, ...]]:
    at = f", snapshot_from_id = {table.refs()[tag].snapshot_id}" if tag else ""
    with duckdb.connect(config=UNSIGNED) as connection:
        for statement in loading():
            connection.execute(statement)
        return connection.execute(f"SELECT * FROM iceberg_scan('{table.metadata_location}'{at})").fetchall()


@contextmanager
def jdbc(lake: Lake) -> Iterator[Callable[[str], list[list[Any]]]]:
    """Run Spark's Thrift server in the session's process, and yield a client of it that runs queries."""
    (url,) = [part.text.strip() for part in MARKED if part.kind == "text"]
    java: Any = lake.spark._jvm
    port, session = free_port(), lake.spark._jsparkSession
    for name, value in (("port", str(port)), ("bind.host", "127.0.0.1")):
        lake.spark._jsc.hadoopConfiguration().set(f"hive.server2.thrift.{name}", value)
    server = java.org.apache.spark.sql.hive.thriftserver.HiveThriftServer2.startWithContext(session.sqlContext())
    try:
        java.java.lang.Class.forName("org.apache.hive.jdbc.HiveDriver")
        connection = java.java.sql.DriverManager.getConnection(url.replace("10000", str(port)))
        for name, value in spark_catalog_conf(lake.settings).items():
            connection.createStatement().execute(f"SET `{name}` = `{value}`")

        def rows(text: str) -> list[list[Any]]:
            found = connection.createStatement().executeQuery(text)
            columns = range(1, found.getMetaData().getColumnCount() + 1)
            read = []
            while found.next():
                read.append([found.getString(number) for number in columns])
            return read

        yield rows
        connection.close()
    finally:
        server.stop()


def arrow_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def plain(rows: Iterable[Iterable[Any]]) -> Rows:
    """Return rows as texts in order: engines have types of their own for numbers and dates."""
    return sorted((tuple(map(_text, row)) for row in rows), key=repr)


def _text(value: Any) -> str | None:
    if value is None or value != value:  # noqa: PLR0124 - NaN is what pandas has for a missing number
        return None
    return str(int(value)) if isinstance(value, float) else str(value)
