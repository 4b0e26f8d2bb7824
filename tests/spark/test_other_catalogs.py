"""Statements on tables of a catalog that is not the lake's: they never touch a table of the lake with the same name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakehold.errors import DefinitionError
from lakehold.lake import Lake
from tests import recorded_files
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark

FED = [(1,)]
FOREIGN = [(7,)]


@pytest.fixture
def other(make_lake: LakeFactory) -> str:
    """Name a catalog in which another program keeps tables with the names of the lake's."""
    other = make_lake()
    other.sql("CREATE NAMESPACE shop")
    for name in ("orders", "rates"):
        other.sql(f"CREATE TABLE shop.{name} (id INT) USING iceberg; INSERT INTO shop.{name} VALUES (7)")
    return other.settings.catalog_name


@pytest.fixture
def lake(make_lake: LakeFactory, other: str, tmp_path: Path) -> Iterator[Lake]:  # noqa: ARG001 - the lake's catalog comes last
    """Feed a table, and write another one; leave the session in the lake's catalog for later tests."""
    body = json.dumps({"id": 1}).encode()
    recorded_files.append(tmp_path / "feed" / "orders.jsonl", [recorded_files.line("orders", 0, 0, body, body)])
    lake = make_lake()
    lake.sql(f"""
        CREATE SOURCE feed FROM FILES '{tmp_path / "feed"}' FORMAT JSON;
        CREATE TABLE shop.orders (id INT) FROM SOURCE feed (TOPIC 'orders') KEY (id) ENVELOPE UPSERT
    """)
    lake.ingest("feed")
    lake.sql("CREATE TABLE shop.rates (id INT) USING iceberg; INSERT INTO shop.rates VALUES (1)")
    yield lake
    lake.sql(f"USE {lake.settings.catalog_name}.shop")


def rows(lake: Lake, catalog: str, table: str = "orders") -> list[tuple[object, ...]]:
    if (table,) not in [row[1:2] for row in lake.sql(f"SHOW TABLES IN {catalog}.shop").rows]:
        return []
    return lake.sql(f"SELECT * FROM {catalog}.shop.{table}").rows


@pytest.mark.parametrize(
    ("use", "name"),
    [
        ("USE {other}.shop", "orders"),
        ("USE {other}.shop", "shop.orders"),
        ("SET CATALOG {other}", "shop.orders"),
        ("USE {other}.shop", "{other}.shop.orders"),
        ("USE {lake}.shop", "{other}.shop.orders"),
    ],
)
def test_a_table_of_another_catalog_is_shown_written_and_dropped_and_the_lakes_stays(
    lake: Lake, other: str, use: str, name: str
) -> None:
    own = lake.settings.catalog_name
    name = name.format(other=other)
    lake.sql(use.format(other=other, lake=own))

    ((shown, *_),) = lake.sql(f"SHOW CREATE TABLE {name}").rows
    assert f"CREATE TABLE {other}.shop.orders" in shown
    lake.sql(f"ALTER TABLE {name} SET (RETAIN HISTORY = '2 days')")
    assert ("lakehold.retain-history-ms", "172800000") in lake.sql(f"SHOW TBLPROPERTIES {other}.shop.orders").rows
    assert lake.definitions.definitions().table("shop.orders").definition.options == {}
    if "." not in name or name.startswith(other):
        lake.sql(f"INSERT INTO {name} VALUES (8)")
        assert sorted(rows(lake, other)) == [(7,), (8,)]

    lake.sql(f"DROP TABLE {name}")
    assert rows(lake, other) == []
    assert rows(lake, own) == FED
    assert list(lake.definitions.definitions().tables) == ["shop.orders"]


def test_the_lakes_tables_are_found_by_their_whole_names_in_another_catalog(lake: Lake, other: str) -> None:
    own = lake.settings.catalog_name
    lake.sql(f"USE {other}.shop")
    assert "FROM SOURCE feed" in lake.sql(f"SHOW CREATE TABLE {own}.shop.orders").rows[0][1]
    with pytest.raises(DefinitionError, match="is fed by source"):
        lake.sql(f"DELETE FROM {own}.shop.orders")
    lake.sql(f"ALTER TABLE {own}.shop.rates SET (RETAIN HISTORY = '2 days')")
    assert ("lakehold.retain-history-ms", "172800000") in lake.sql(f"SHOW TBLPROPERTIES {own}.shop.rates").rows
    lake.sql(f"DROP TABLE {own}.shop.orders; DROP TABLE {own}.shop.rates")
    assert not lake.definitions.definitions().tables
    assert rows(lake, own) == rows(lake, own, "rates") == []
    assert rows(lake, other) == rows(lake, other, "rates") == FOREIGN
