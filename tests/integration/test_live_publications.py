"""lakehold adds to its own publication what it leaves out, and refuses a partial publication of somebody else."""

from __future__ import annotations

import pytest

from lakehold.errors import UpstreamError
from lakehold.status import status_of
from tests.captured_shop import Shop, grant_capture
from tests.captured_shop import poor as poor  # noqa: PLC0414 - pytest finds fixtures by name
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.live_source import execute
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_UNSEEN = (
    "UPDATE orders SET n = 5 WHERE id < 50",
    "INSERT INTO orders VALUES (900, 9, '')",
    "DELETE FROM orders WHERE id > 190",
)


def _refused(shop: Shop, statement: str | None = None) -> str:
    """Run a statement, or an ingest, that is refused for a partial publication; return the detail."""
    with pytest.raises(UpstreamError) as refusal:
        shop.lake.sql(statement) if statement is not None else list(shop.lake.ingest("shop"))
    assert refusal.value.code == "publication-partial"
    return refusal.value.detail


def test_changes_that_its_own_publication_left_out_are_published_and_fetched(shop: Shop) -> None:
    shop.upstream("orders", "items")
    shop.lake.sql(f"BEGIN; {shop.creating('orders')}; {shop.creating('items', 'DEBEZIUM UPSERT')}; COMMIT")
    shop.follow_until_equal("orders", "items")
    execute(
        shop.database, ["ALTER PUBLICATION lake SET (publish = 'insert')", *_UNSEEN, "DELETE FROM items WHERE id < 9"]
    )
    assert shop.steps("ALTER SOURCE shop REPAIR") == [
        "stop connector shop",
        "snapshot of public.items alone",
        "snapshot of public.orders alone",
        "publication lake: publish all operations",
        "record that public.items, public.orders are in publication lake",
        "start connector shop",
    ]
    shop.reopen()
    shop.follow_until_equal("orders", "items")

    narrow = (
        "ALTER PUBLICATION lake SET TABLE orders WHERE (id > 1000), items, lakehold_signals.of_" + shop.database.name
    )
    execute(shop.database, [narrow, "UPDATE orders SET note = 'again'", "DELETE FROM orders WHERE id = 60"])
    shop.reopen()
    shop.follow_until_equal("orders", "items")
    execute(shop.database, ["UPDATE orders SET n = n + 1", "DELETE FROM orders WHERE id = 61"])
    shop.follow_until_equal("orders", "items")
    shop.follow_until_nothing_is_reported()


def test_a_table_that_lakehold_may_not_publish_again_stops_alone_until_somebody_does(poor: Shop) -> None:
    poor.upstream("orders", "items")
    grant_capture(poor, "orders", "items")
    poor.lake.sql(f"BEGIN; {poor.creating('orders')}; {poor.creating('items')}; COMMIT")
    poor.follow_until_equal("orders", "items")
    taken_out = ["ALTER PUBLICATION lake DROP TABLE items", "UPDATE items SET n = 7", "DELETE FROM items WHERE id = 9"]
    execute(poor.database, [*taken_out, "UPDATE orders SET n = 3"])
    poor.reopen()
    codes = {name: error.code for report in poor.lake.ingest("shop") for name, error in report.stopped.items()}
    assert codes == {"shop.items": "table-unpublished"}
    upper_ms = poor.upper_ms("items")

    def has(table: str) -> bool:
        list(poor.lake.ingest("shop"))
        return poor.rows(table) == poor.wanted(table)

    wait_for(lambda: has("orders"), "the other table continues")
    assert poor.upper_ms("items") == upper_ms
    assert any("does not list public.items any more" in notice for notice in status_of(poor.lake).notices)
    execute(poor.database, ["ALTER PUBLICATION lake ADD TABLE items", "DELETE FROM items WHERE id < 5"])
    poor.reopen()

    def came_back() -> bool:
        # Without a signal table a snapshot of one table goes on with each change of another.
        execute(poor.database, ["UPDATE orders SET n = n + 1 WHERE id = 1"])
        return has("items")

    wait_for(came_back, "the table continues after a snapshot")
    wait_for(lambda: has("items") and poor.upper_ms("items") > upper_ms, "the table is readable again")
    poor.follow_until_equal("orders", "items")


@pytest.mark.soak
def test_a_partial_publication_of_somebody_else_is_refused_and_missed_changes_are_fetched(shop: Shop) -> None:
    shop.upstream("orders")
    execute(
        shop.database, ["CREATE PUBLICATION lake FOR TABLE orders (id, n) WHERE (id < 100) WITH (publish = 'insert')"]
    )
    detail = _refused(shop, shop.creating("orders"))
    assert detail == "It does not publish delete, truncate, update. For public.orders it leaves out rows and columns."
    assert (shop.topics(), shop.slots()) == (set(), 0)

    all_of_it = "ALTER PUBLICATION lake SET TABLE orders"
    execute(shop.database, [all_of_it, "ALTER PUBLICATION lake SET (publish = 'insert, update, delete, truncate')"])
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")
    before = shop.rows("orders")

    execute(shop.database, ["ALTER PUBLICATION lake SET (publish = 'insert')", *_UNSEEN])
    shop.reopen()
    for _ in range(2):
        assert _refused(shop) == "It does not publish delete, truncate, update."
    assert shop.rows("orders") == before
    assert "leaves out changes" in " ".join(status_of(shop.lake).notices)
    execute(shop.database, ["ALTER PUBLICATION lake SET (publish = 'insert, update, delete, truncate')"])
    shop.follow_until_equal("orders")
    shop.follow_until_nothing_is_reported()


def test_changes_of_partitions_arrive_under_the_name_of_their_table_or_are_refused(shop: Shop) -> None:
    execute(
        shop.database,
        [
            "CREATE TABLE parted (id int PRIMARY KEY, n int, note text) PARTITION BY RANGE (id)",
            "CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (100)",
            "CREATE PUBLICATION lake FOR TABLE parted",
        ],
    )
    detail = _refused(shop, shop.creating("parted"))
    assert detail == "For public.parted it leaves out changes, which go by the names of its partitions."
    execute(
        shop.database,
        ["ALTER PUBLICATION lake SET (publish_via_partition_root = true)", "INSERT INTO parted VALUES (1, 1)"],
    )
    shop.lake.sql(shop.creating("parted"))
    execute(shop.database, ["INSERT INTO parted VALUES (2, 2)"])
    shop.follow_until_equal("parted")


def test_a_publication_of_another_source_is_refused(shop: Shop) -> None:
    shop.upstream("orders", "items")
    shop.lake.sql(shop.creating("orders"))
    other = shop.creating_source.replace("SOURCE shop", "SOURCE other").replace(
        shop.database.name, f"{shop.database.name}_2"
    )
    shop.lake.sql(other)
    with pytest.raises(UpstreamError) as refusal:
        shop.lake.sql(shop.creating("items").replace("shop.", "other.").replace("SOURCE shop", "SOURCE other"))
    assert refusal.value.code == "publication-foreign"
    shop.follow_until_equal("orders")
    shop.lake.sql("DROP SOURCE other CASCADE")
    execute(shop.database, ["UPDATE orders SET n = 7"])
    shop.follow_until_equal("orders")
