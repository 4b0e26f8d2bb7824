"""A durable client with several statements over one table: each statement knows the columns that it has read itself."""

from __future__ import annotations

from typing import Any

import pytest

from lakehold.errors import DefinitionError, SubscriberLapsed
from lakehold.lake import Lake
from lakehold.state.subscribers import Subscriber, SubscriberKind
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark

STATEMENTS = {
    "ids": "SUBSCRIBE (SELECT id FROM shop.orders)",
    "status": "SUBSCRIBE (SELECT id, status FROM shop.orders)",
    "sums": "SUBSCRIBE (SELECT status, sum(xxhash64(amount)) AS total FROM shop.orders GROUP BY status)",
    "bodies": "SUBSCRIBE (SELECT id, to_json(struct(*)) AS body FROM shop.orders)",
    "all": "SUBSCRIBE shop.orders",
}


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    lake = make_lake(foreign_lag_ms=0)
    lake.sql("""
        CREATE NAMESPACE shop;
        CREATE TABLE shop.orders (id INT, status STRING, amount INT) USING iceberg;
        INSERT INTO shop.orders VALUES (1, 'new', 5)
    """)
    return lake


def read(lake: Lake, statements: dict[str, str]) -> dict[str, int]:
    """Run the client to its end. Returns the number of rows by statement."""
    found = dict.fromkeys(statements, 0)

    def count(rows: dict[str, Any]) -> None:
        for name, of in rows.items():
            found[name] += len(list(of))

    lake.durable("app", statements).run(count, lambda _, rows: count(rows))
    return found


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "reversed"])
def test_statements_over_one_table_are_read_again_and_again(lake: Lake, order: int) -> None:
    statements = dict([*STATEMENTS.items()][::order])
    assert read(lake, statements) == dict.fromkeys(statements, 1)
    lake.sql("INSERT INTO shop.orders VALUES (2, 'paid', 6)")
    assert read(lake, statements) == dict.fromkeys(statements, 1)


def test_a_client_ends_if_one_of_its_statements_computes_from_a_wider_column(lake: Lake) -> None:
    statements = {name: STATEMENTS[name] for name in ("ids", "sums")}
    read(lake, statements)
    lake.sql("ALTER TABLE shop.orders ALTER COLUMN id TYPE BIGINT; INSERT INTO shop.orders VALUES (2, 'new', 6)")
    assert read(lake, statements) == {"ids": 1, "sums": 2}
    lake.sql("ALTER TABLE shop.orders ALTER COLUMN amount TYPE BIGINT; INSERT INTO shop.orders VALUES (3, 'new', 7)")
    with pytest.raises(SubscriberLapsed, match="columns") as ended:
        read(lake, statements)
    assert "shop.orders.amount" in ended.value.detail


@pytest.mark.parametrize("names", [("one",), ("one", "other")])
def test_a_client_that_is_stored_with_the_catalog_before_columns_goes_on(lake: Lake, names: tuple[str, ...]) -> None:
    catalog = lake.settings.catalog_name
    stored = f"SUBSCRIBE (SELECT {catalog}.shop.orders.id FROM shop.orders)"
    texts = "; ".join(f"{name}: {stored}" for name in names)
    lake.subscriptions.store.register(Subscriber("app", SubscriberKind.CLIENT, "app", texts, epoch=1))
    statement = f"SUBSCRIBE (SELECT {catalog}.shop.orders.id FROM {catalog}.shop.orders)"
    assert read(lake, dict.fromkeys(names, statement)) == dict.fromkeys(names, 1)
    with pytest.raises(DefinitionError) as refused:
        read(lake, dict.fromkeys(names, "SUBSCRIBE (SELECT status FROM shop.orders)"))
    assert refused.value.code == "client-statement"
