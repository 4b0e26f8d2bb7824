"""Upstream objects of a source follow its definitions: lakehold creates, changes, refuses, repairs and removes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lakehold import stack as lakehold_stack
from lakehold.doctor import examine
from lakehold.errors import LakeholdError
from lakehold.stack import ConnectClient
from lakehold.status import status_of
from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.conftest import LakeFactory
from tests.live_source import execute
from tests.stack_fixtures import SourceDatabase
from tests.waiting import wait_for

pytestmark = pytest.mark.stack


@pytest.fixture
def avro_shop(make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Return a shop that is captured as Avro."""
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(make_lake, database, "FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry")
    yield shop
    shop.close()


def test_upstream_objects_are_dropped_with_their_definitions(shop: Shop) -> None:
    shop.upstream("customers", "orders")
    execute(shop.database, ["CREATE PUBLICATION of_others FOR TABLE orders"])
    shop.lake.sql(f"BEGIN; {shop.creating('orders')}; {shop.creating('customers')}; COMMIT")
    shop.wait_for_events("orders", {"r": 200})
    shop.wait_for_events("customers", {"r": 200})

    shop.lake.sql("DROP TABLE shop.customers")
    assert shop.publications()["lake"] == {"orders", f"of_{shop.database.name}"}
    assert "shop.public.customers" not in shop.topics()
    execute(shop.database, ["UPDATE orders SET n = 7", "UPDATE customers SET n = 7"])
    shop.wait_for_events("orders", {"r": 200, "u": 200})
    assert "shop.public.customers" not in shop.topics(), "nothing writes the topic any more"

    with pytest.raises(LakeholdError, match="still used"):
        shop.lake.sql("DROP SOURCE shop")
    shop.lake.sql("DROP SOURCE shop CASCADE")
    left = (shop.topics(), shop.slots(), shop.publications(), shop.signal_schemas())
    assert left == (set(), 0, {"of_others": {"orders"}}, 0)
    with ConnectClient(shop.database.addresses.connect) as worker:
        assert shop.database.name not in worker.names()


def test_tables_that_cannot_be_captured_are_refused_before_they_are_declared(shop: Shop) -> None:
    shop.upstream("orders")
    with pytest.raises(LakeholdError) as refusal:
        shop.lake.sql(shop.creating("order"))
    assert refusal.value.code == "upstream-table-missing"
    assert refusal.value.hint == "Did you mean public.orders?"
    with ConnectClient(shop.database.addresses.connect) as worker:
        config = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "topic.prefix": "others"}
        worker.create_stopped(shop.database.name, {**shop.database.connector_config("public.orders"), **config})
        with pytest.raises(LakeholdError) as refusal:
            shop.lake.sql(shop.creating("orders"))
        assert refusal.value.code == "connector-foreign"
        worker.delete(shop.database.name)
    assert shop.lake.sql("SHOW TABLES").rows == []
    assert shop.topics() == set()
    execute(shop.database, ["ALTER TABLE orders REPLICA IDENTITY DEFAULT"])
    (notice,) = shop.lake.sql(shop.creating("orders")).notices
    assert notice.endswith("ALTER TABLE public.orders REPLICA IDENTITY FULL")


def test_upstream_objects_changed_by_hand_are_reported_and_repaired(shop: Shop) -> None:
    shop.upstream("customers", "orders")
    shop.lake.sql(f"BEGIN; {shop.creating('orders')}; {shop.creating('customers')}; COMMIT")
    shop.wait_for_events("orders", {"r": 200})
    shop.wait_for_events("customers", {"r": 200})
    name = shop.database.name
    with ConnectClient(shop.database.addresses.connect) as worker:
        config = worker.config(name)
        assert config is not None
        worker.put(name, {**config, "tombstones.on.delete": "false"})
        execute(shop.database, ["ALTER PUBLICATION lake DROP TABLE customers"])
        assert shop.steps("ALTER SOURCE shop REPAIR") == [
            "stop connector shop",
            "snapshot of public.customers alone",
            "publication lake: add public.customers",
            "record that public.customers is in publication lake",
            "connector shop: tombstones.on.delete from false to true",
            "start connector shop",
        ]
        shop.lake.sql("ALTER SOURCE shop REPAIR")
        assert worker.config(name) == config
        shop.lake.sql("ALTER CONNECTION pg SET (HOST 'localhost'); ALTER SOURCE shop REPAIR")
        config = {**config, "database.hostname": "localhost"}
        assert worker.config(name) == config
        worker.delete(name)
    problem, missed = status_of(shop.lake).notices
    assert "there is no connector" in problem
    assert "changes of public.customers were missed" in missed

    execute(shop.database, ["UPDATE customers SET n = 1"])
    shop.lake.sql("ALTER SOURCE shop REPAIR")
    wait_for(lambda: shop.events("customers")["u"] == 200, "changes arrive again")
    assert shop.events("orders") == {"r": 200}, "Connect keeps its offsets: nothing is snapshotted again"
    shop.follow_until_nothing_is_reported()


def test_the_doctor_asks_each_system_and_finds_what_was_removed(avro_shop: Shop) -> None:
    shop = avro_shop
    shop.upstream("orders")
    shop.lake.sql(shop.creating("orders"))

    def found() -> dict[str, tuple[str, str]]:
        rows = examine(shop.lake.settings, lambda: shop.lake)
        return {checked: (state, text) for checked, state, text, _ in rows}

    wait_for(lambda: {state for state, _ in found().values()} == {"ok"}, "the connector runs")
    well = found()
    assert {f"connection {name}" for name in ("pg", "kafka", "connect", "registry")} <= well.keys()
    with ConnectClient(shop.database.addresses.connect) as worker:
        worker.delete(shop.database.name)
    state, text = found()["source shop"]
    assert (state, "there is no connector" in text) == ("failed", True)


def test_a_failed_task_is_reported_and_restarted_with_a_growing_backoff(
    avro_shop: Shop, stack_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop = avro_shop
    shop.upstream("orders")
    shop.lake.sql(shop.creating("orders"))
    wait_for(lambda: "shop.public.orders" in shop.topics(), "the table has its topic")
    (pid,) = (part.pid for part in lakehold_stack.status(stack_directory) if part.name == "registry")
    registry = psutil.Process(pid)
    registry.kill()
    registry.wait()
    try:
        execute(shop.database, ["ALTER TABLE orders ADD COLUMN more text", "UPDATE orders SET n = 2, more = 'x'"])
        wait_for(lambda: any("failed" in notice for notice in status_of(shop.lake).notices), "the task fails")
    finally:
        lakehold_stack.up(stack_directory)

    shop.lake.captured.reconcile("shop")
    assert "its connector failed and was restarted" in caplog.text
    assert "Checking again in 5 s" in caplog.text
    wait_for(lambda: status_of(shop.lake).notices == (), "the task runs again")
