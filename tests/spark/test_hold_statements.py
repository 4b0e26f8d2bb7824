"""Holds on tables that Spark writes: every engine can read the held history, and no one drops a held table by mistake."""

from __future__ import annotations

import pytest

from lakehold.errors import DefinitionError, NotReadable
from lakehold.lake import Lake
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    """Create a table whose three snapshots add a row each, and a view on this table."""
    lake = make_lake(foreign_lag_ms=0)
    lake.sql("CREATE NAMESPACE shop; CREATE TABLE shop.rates (id INT) USING iceberg")
    for number in range(3):
        lake.sql(f"INSERT INTO shop.rates VALUES ({number})")
    lake.sql("CREATE VIEW shop.best AS SELECT max(id) AS id FROM shop.rates")
    return lake


def times(lake: Lake) -> list[int]:
    return [entry.timestamp_ms for entry in lake.catalog.load_table("shop.rates").history()]


def expire_all(lake: Lake) -> None:
    """Expire all snapshots but one, as a tool does that knows nothing of holds."""
    lake.sql(
        "CALL system.expire_snapshots(table => 'shop.rates', older_than => TIMESTAMP '2999-01-01', retain_last => 1)"
    )


def test_held_history_stays_readable_for_every_reader(lake: Lake) -> None:
    first, second, third = times(lake)
    lake.sql(f"CREATE HOLD h ON shop.rates AT {second}")
    changes = f"SUBSCRIBE shop.rates AS OF {second} UP TO {third + 1}"
    expected = lake.sql(changes).rows
    expire_all(lake)
    assert lake.sql(changes).rows == expected
    assert lake.sql("SELECT count(*) FROM shop.rates VERSION AS OF 'hold_h'").rows == [(2,)]
    assert lake.sql(f"SELECT count(*) FROM shop.rates AS OF {second}").rows == [(2,)]
    for statement in (f"SELECT * FROM shop.rates AS OF {first}", f"SUBSCRIBE shop.rates AS OF {first}"):
        with pytest.raises(NotReadable, match=f'Hold "h" keeps "shop.rates" from {second} '):
            lake.sql(statement)
    assert lake.sql("SELECT name, at FROM mz_catalog.mz_holds").rows == [("h", second)]
    assert lake.sql("SELECT on_name FROM mz_catalog.mz_hold_objects").rows == [("shop.rates",)]


def test_a_view_cannot_be_held(lake: Lake) -> None:
    with pytest.raises(DefinitionError, match="It is a view") as refused:
        lake.sql("CREATE HOLD h ON shop.best")
    assert refused.value.code == "not-holdable"


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE shop.rates",
        "DROP TABLE IF EXISTS {catalog}.shop.rates",
        "DROP TABLE shop.rates PURGE",
        "ALTER TABLE shop.rates RENAME TO shop.prices",
    ],
)
def test_a_held_table_is_neither_dropped_nor_renamed(lake: Lake, statement: str) -> None:
    lake.sql("CREATE HOLD h ON shop.rates")
    with pytest.raises(DefinitionError, match=r'"shop\.h" at ') as refused:
        lake.sql(statement.format(catalog=lake.settings.catalog_name))
    assert refused.value.code == "table-held"
    assert lake.sql("SELECT count(*) FROM shop.rates").rows == [(3,)]


@pytest.mark.parametrize("name", ["rates", "{catalog}.shop.rates"])
@pytest.mark.parametrize("statement", ["DROP TABLE {}", "DROP TABLE IF EXISTS {}", "ALTER TABLE {} RENAME TO x"])
def test_a_held_table_is_found_by_each_of_its_names(lake: Lake, statement: str, name: str) -> None:
    name = name.format(catalog=lake.settings.catalog_name)
    lake.sql("CREATE HOLD h ON shop.rates; USE shop")
    with pytest.raises(DefinitionError) as refused:
        lake.sql(statement.format(name))
    assert refused.value.code == "table-held"
    lake.sql(f"DROP TABLE {name} CASCADE")
    assert lake.sql("SHOW HOLDS").rows == lake.sql("SHOW TABLES IN shop").rows == []


def test_the_hold_of_a_view_goes_with_the_view(lake: Lake) -> None:
    lake.sql("CREATE MATERIALIZED VIEW shop.v AS SELECT * FROM shop.rates")
    with pytest.raises(DefinitionError) as refused:
        lake.sql("DROP TABLE shop.rates PURGE")
    assert refused.value.hint == (
        "Drop these holds first (one of a subscription, view or client goes with it). "
        "DROP TABLE shop.rates CASCADE drops them with the table."
    )
    lake.sql("DROP MATERIALIZED VIEW shop.v; DROP TABLE shop.rates")
    assert lake.sql("SHOW TABLES IN shop").rows == []


def test_cascade_drops_the_holds_and_then_the_table(lake: Lake) -> None:
    lake.sql("CREATE HOLD h ON shop.rates; DROP TABLE shop.rates CASCADE")
    assert lake.sql("SHOW HOLDS").rows == []
    assert lake.sql("SHOW TABLES IN shop").rows == []
    lake.sql("DROP TABLE IF EXISTS shop.rates CASCADE")
