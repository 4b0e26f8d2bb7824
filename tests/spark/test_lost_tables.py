"""A fed table that another program drops or renames stops until it is back: a new one would lack the rows of earlier batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lakehold.errors import DefinitionError, LakeholdError
from lakehold.lake import Lake
from tests.transaction_files import Connector, define

pytestmark = pytest.mark.spark


class Shop:
    """A lake with tables `orders` and `stock`, whose rows come from one connector."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.lake = lake
        define(lake, directory, {"orders": "DEBEZIUM UPSERT", "stock": "DEBEZIUM UPSERT"})
        self.connector = Connector(directory)

    def write(self, key: int) -> Mapping[str, LakeholdError]:
        """Commit a row of each table and ingest them; return the errors of tables that stopped."""
        self.connector.transaction(("orders", key, key), ("stock", key, key))
        return {name: error for report in self.lake.ingest("shop") for name, error in report.stopped.items()}

    def keys(self, name: str) -> list[int]:
        return [key for (key,) in self.lake.sql(f"SELECT id FROM shop.{name} ORDER BY id").rows]


@pytest.fixture
def shop(lake: Lake, tmp_path: Path) -> Shop:
    made = Shop(lake, tmp_path / "topics")
    assert made.write(1) == {}
    return made


def test_a_renamed_table_stops_alone_and_continues_under_its_name(shop: Shop) -> None:
    shop.lake.catalog.rename_table("shop.orders", "shop.orders_old")
    for key in (2, 3):
        stopped = shop.write(key)
        assert [(name, error.code) for name, error in stopped.items()] == [("shop.orders", "table-missing")]
    assert shop.keys("stock") == [1, 2, 3]
    with pytest.raises(DefinitionError, match="does not exist any more") as missing:
        shop.lake.sql("SELECT * FROM shop.orders AS OF EARLIEST")
    assert missing.value.code == "table-missing"
    assert "DROP TABLE shop.orders" in missing.value.hint

    shop.lake.sql("ALTER TABLE shop.orders_old RENAME TO shop.orders")
    assert shop.write(4) == {}
    assert shop.keys("orders") == shop.keys("stock") == [1, 2, 3, 4]


def test_a_dropped_table_is_loaded_again_once_it_is_created_again(shop: Shop) -> None:
    shop.lake.catalog.drop_table("shop.orders")
    assert list(shop.write(2)) == ["shop.orders"]
    ((_, create),) = shop.lake.sql("SHOW CREATE TABLE shop.orders").rows
    shop.lake.sql(f"DROP TABLE shop.orders; {create}")
    assert shop.write(3) == {}
    assert shop.keys("orders") == shop.keys("stock") == [1, 2, 3]
