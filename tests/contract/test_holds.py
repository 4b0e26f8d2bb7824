"""Holds in memory and in a lake: what comes back is what was put there, and those who change them at once lose nothing."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog

from lakehold.errors import DefinitionError
from lakehold.settings import Settings
from lakehold.state.holds import (
    HOLD_OBJECTS_TABLE,
    HOLDS_TABLE,
    Check,
    HeldTable,
    Hold,
    Holds,
    HoldStore,
    PyIcebergHolds,
)
from lakehold.state.memory import MemoryHolds
from lakehold.state.opening import open_catalog
from lakehold.state.subscribers import SubscriberKind
from tests.contract.conftest import STORES, CatalogOf

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


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, catalog_of: CatalogOf) -> HoldStore:
    return MemoryHolds() if request.param == "memory" else PyIcebergHolds(catalog_of(request.param))


def test_holds_come_back_as_they_were_made(store: HoldStore) -> None:
    assert store.holds() == ()
    assert store.change(lambda none: (*none, DAILY, WAITING)) == (DAILY, WAITING)
    assert store.holds() == (DAILY, WAITING)
    assert store.change(lambda holds: holds[1:]) == (WAITING,)
    assert store.holds() == (WAITING,)


def test_a_hold_from_before_there_were_roles_has_no_owner(settings: Settings, catalog: Catalog) -> None:
    with catalog.load_table(HOLDS_TABLE).update_schema() as earlier:
        earlier.delete_column("owner").delete_column("kept_by_type")
    PyIcebergHolds(catalog).change(lambda _: (DAILY,))
    later = open_catalog(settings)
    store = PyIcebergHolds(later)
    assert store.holds() == (DAILY,)
    assert store.change(lambda holds: (*holds, WAITING)) == (DAILY, WAITING)
    later.close()


def test_a_refused_change_leaves_nothing(store: HoldStore) -> None:
    store.change(lambda _: (DAILY,))

    def refuse(_: Holds) -> Holds:
        raise DefinitionError('hold "daily" already exists')

    with pytest.raises(DefinitionError):
        store.change(refuse)
    assert store.holds() == (DAILY,)


def test_changes_of_many_threads_lose_nothing(store: HoldStore) -> None:
    def add(number: int) -> None:
        store.change(lambda holds: (*holds, replace(WAITING, hold_id=f"u{number}", name=f"h{number}")))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(24)))
    assert sorted(hold.hold_id for hold in store.holds()) == sorted(f"u{number}" for number in range(24))


def test_the_tables_of_a_hold_can_be_joined(catalog: Catalog) -> None:
    store = PyIcebergHolds(catalog)
    store.change(lambda _: (DAILY, WAITING))
    store.change(lambda holds: holds[:1])
    holds = catalog.load_table(HOLDS_TABLE).scan().to_arrow().to_pylist()
    assert [(row["id"], row["schema_id"], row["name"], row["at"]) for row in holds] == [("u1", "shop", "daily", 1_000)]
    objects = catalog.load_table(HOLD_OBJECTS_TABLE).scan().to_arrow().to_pylist()
    assert [(row["hold_id"], row["on_id"], row["on_name"]) for row in objects] == [
        ("u1", ORDERS.object_id, "shop.orders"),
        ("u1", RATES.object_id, "shop.rates"),
    ]


def add_holds(settings: Settings, process: int, count: int) -> None:
    """What each of several processes does to one lake."""
    catalog = open_catalog(settings)
    store = PyIcebergHolds(catalog)
    for number in range(count):
        added = replace(WAITING, hold_id=f"u{process}-{number}")
        store.change(lambda holds, added=added: (*holds, added))  # type: ignore[misc] # mypy: no defaults in a lambda
    catalog.close()


def test_changes_of_many_processes_lose_nothing(settings: Settings, catalog: Catalog) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.contract.conftest"])
    processes = [context.Process(target=add_holds, args=(settings, p, 5)) for p in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    holds = PyIcebergHolds(catalog).holds()
    assert {hold.hold_id for hold in holds} == {f"u{p}-{n}" for p in range(4) for n in range(5)}
    objects = catalog.load_table(HOLD_OBJECTS_TABLE).scan().to_arrow().to_pylist()
    assert {row["hold_id"] for row in objects} == {hold.hold_id for hold in holds}
