"""Durable clients and histories that start over, and what a client keeps of the run before."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from lakehold.errors import LeaseLost
from lakehold.lake import Lake
from lakehold.publish.deliveries import Delivery
from tests.conftest import LakeFactory
from tests.history_tables import ranges
from tests.numbered_shop import NumberedShop

pytestmark = pytest.mark.spark

ITEMS = "SUBSCRIBE (SELECT k, v FROM s.items)"


@pytest.fixture
def shop(make_lake: LakeFactory, tmp_path: Path) -> NumberedShop:
    """Return a shop whose table `s.items` has three rows, and whose source is idle."""
    found = NumberedShop(make_lake(foreign_lag_ms=0), tmp_path / "topics")
    found.table("items", "items")
    found.write("items", 3)
    found.lake.ingest("shop")
    return found


@pytest.fixture
def lake(make_lake: LakeFactory) -> Lake:
    lake = make_lake(foreign_lag_ms=0)
    lake.sql("""
        CREATE NAMESPACE shop;
        CREATE TABLE shop.orders (id INT, note STRING) USING iceberg;
        INSERT INTO shop.orders VALUES (1, 'a')
    """)
    return lake


def add_again(lake: Lake, table: str, column: str) -> None:
    """Drop a column and add it again, so that readers cannot see which values rows have now."""
    lake.sql(f"ALTER TABLE {table} DROP COLUMN {column}; ALTER TABLE {table} ADD COLUMN {column} STRING")


def delivered(lake: Lake) -> list[Delivery]:
    found = []
    for delivery in lake.durable("app", ITEMS, on_lapse="resnapshot").deliveries():
        assert len(list(delivery)) == 3
        delivery.acknowledge()
        found.append(delivery)
    return found


def test_a_client_that_starts_over_without_a_batch_since_has_its_snapshot_once(shop: NumberedShop) -> None:
    """Start over at the time that the client acknowledged last."""
    (first,) = delivered(shop.lake)
    assert delivered(shop.lake) == []
    add_again(shop.lake, "s.items", "v")
    (again,) = delivered(shop.lake)
    assert (again.is_snapshot, again.timestamp) == (True, first.timestamp)
    assert delivered(shop.lake) == []


def test_a_history_that_starts_over_without_a_batch_since_has_no_empty_ranges(shop: NumberedShop) -> None:
    shop.lake.sql(
        f"CREATE SUBSCRIPTION h INTO bi.out WITH (ON LAPSE = 'resnapshot') AS {ITEMS} ENVELOPE HISTORY (KEY (k))"
    )
    shop.lake.publish("h")
    before = ranges(shop.lake, "bi.out")
    add_again(shop.lake, "s.items", "v")
    (report,) = shop.lake.publish("h")
    assert report.restarted
    assert [(row[0], row[-2:]) for row in ranges(shop.lake, "bi.out")] == [(row[0], row[-2:]) for row in before]


def test_a_client_starts_over_while_it_follows(lake: Lake) -> None:
    """Acknowledge a delivery of before once the snapshot has begun, which changes nothing."""
    client = lake.durable("app", "SUBSCRIBE (SELECT id, note FROM shop.orders)", on_lapse="resnapshot")
    following = client.deliveries(Event())
    first = next(following)
    first.acknowledge()
    lake.sql("INSERT INTO shop.orders VALUES (2, 'b')")
    second = next(following)
    add_again(lake, "shop.orders", "note")
    lake.sql("INSERT INTO shop.orders VALUES (3, 'c')")
    third = next(following)
    assert third.is_snapshot
    assert sorted(list(third), key=repr) == [(third.timestamp, 1, *row) for row in ((1, None), (2, None), (3, "c"))]
    acknowledged = client.position
    second.acknowledge()
    assert client.position == acknowledged
    third.acknowledge()
    assert client.position == third.timestamp + 1
    following.close()


def test_a_longer_max_lag_counts_for_a_client_that_has_run(lake: Lake) -> None:
    def run(max_lag_ms: int | None) -> int:
        client = lake.durable("app", "SUBSCRIBE shop.orders", max_lag_ms=max_lag_ms)
        client.run(lambda _: None, lambda *_: None)
        return lake.holds.hold("client_app").max_lag_ms

    assert [run(60_000), run(3_600_000), run(None), run(60_000)] == [60_000, 3_600_000, 3_600_000, 60_000]


def test_a_delivery_of_a_client_that_was_forgotten_is_not_acknowledged_late(lake: Lake) -> None:
    def delivered_unacknowledged() -> Delivery:
        (delivery,) = lake.durable("app", "SUBSCRIBE shop.orders").deliveries()
        return delivery

    old = delivered_unacknowledged()
    client = lake.durable("app", "SUBSCRIBE shop.orders")
    client.forget()
    delivered_unacknowledged()
    with pytest.raises(LeaseLost):
        old.acknowledge()
    assert client.position is None
