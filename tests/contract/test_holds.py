"""Holds in memory and in a lake: they are read as they were stored, and concurrent changes are never lost."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace

from pyiceberg.catalog import Catalog

from lakehold.settings import Settings
from lakehold.state.catalog_opening import open_catalog
from lakehold.state.holds import HOLD_OBJECTS, HOLDS, Check, HeldTable, Hold, HoldStore
from lakehold.state.iceberg_state import IcebergState
from lakehold.state.subscribers import SubscriberKind

ORDERS = HeldTable("4f1c", "shop.orders", is_fed=True)
RATES = HeldTable("0b7c9a56-5c53-4b8e-9a55-0d3a5f2f4d11", "shop.rates")
DAILY = Hold("u1", "shop", "daily", 1_000, (ORDERS, RATES), 10_800_000, Check.REQUIRE, "CREATE HOLD …", 1)
WAITING = Hold(
    "u2",
    "shop",
    "waiting",
    None,
    (ORDERS,),
    60_000,
    Check.OFF,
    "CREATE HOLD …",
    2,
    "client",
    900,
    "r1",
    SubscriberKind.CLIENT,
)


def test_a_hold_stored_before_roles_existed_has_no_owner(settings: Settings, catalog: Catalog) -> None:
    with catalog.load_table(HOLDS.table).update_schema() as earlier:
        earlier.delete_column("owner").delete_column("kept_by_type")
    HoldStore(IcebergState(catalog)).change(lambda _: (DAILY,))
    later = open_catalog(settings)
    store = HoldStore(IcebergState(later))
    assert store.holds() == (DAILY,)
    assert store.change(lambda holds: (*holds, WAITING)) == (DAILY, WAITING)
    later.close()


def test_the_tables_of_a_hold_can_be_joined(catalog: Catalog) -> None:
    store = HoldStore(IcebergState(catalog))
    store.change(lambda _: (DAILY, WAITING))
    store.change(lambda holds: holds[:1])
    holds = catalog.load_table(HOLDS.table).scan().to_arrow().to_pylist()
    assert [(row["id"], row["schema_id"], row["name"], row["at"]) for row in holds] == [("u1", "shop", "daily", 1_000)]
    objects = catalog.load_table(HOLD_OBJECTS.table).scan().to_arrow().to_pylist()
    assert [(row["hold_id"], row["on_id"], row["on_name"]) for row in objects] == [
        ("u1", ORDERS.object_id, "shop.orders"),
        ("u1", RATES.object_id, "shop.rates"),
    ]


def add_holds(settings: Settings, process: int, count: int) -> None:
    """Add holds to a lake, as one of several processes."""
    catalog = open_catalog(settings)
    store = HoldStore(IcebergState(catalog))
    for number in range(count):
        added = replace(WAITING, hold_id=f"u{process}-{number}")
        store.change(lambda holds, added=added: (*holds, added))  # type: ignore[misc] # mypy: no defaults in a lambda
    catalog.close()


def test_changes_of_many_processes_lose_nothing(settings: Settings, catalog: Catalog) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.contract.conftest"])
    processes = [context.Process(target=add_holds, args=(settings, p, 3)) for p in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    holds = HoldStore(IcebergState(catalog)).holds()
    assert {hold.hold_id for hold in holds} == {f"u{p}-{n}" for p in range(8) for n in range(3)}
    objects = catalog.load_table(HOLD_OBJECTS.table).scan().to_arrow().to_pylist()
    assert {row["hold_id"] for row in objects} == {hold.hold_id for hold in holds}
