"""What every store of subscribers does, the lake's and its twin in memory."""

from __future__ import annotations

import pytest

from lakehold.errors import DefinitionError, LeaseLost, SubscriberBusy
from lakehold.state.memory import MemorySubscribers
from lakehold.state.subscribers import PyIcebergSubscribers, Subscriber, SubscriberKind, SubscriberStore
from tests.contract.conftest import STORES, CatalogOf

CLIENT = Subscriber("app", SubscriberKind.CLIENT, "app", "SUBSCRIBE shop.t")
OTHER = Subscriber("id", SubscriberKind.SUBSCRIPTION, "s", "SUBSCRIBE shop.u")


class Clock:
    ms = 1_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, catalog_of: CatalogOf, clock: Clock) -> SubscriberStore:
    if request.param == "memory":
        return MemorySubscribers(clock)
    return PyIcebergSubscribers(catalog_of(request.param), clock)


def test_registering_twice_keeps_what_is_there(store: SubscriberStore) -> None:
    store.register(OTHER)
    assert store.register(CLIENT) == CLIENT
    store.acquire("app", "me", 2_000)
    store.move("app", "me", 5)
    assert store.register(CLIENT).position_ms == 5
    assert store.find("id") == OTHER


def test_one_owner_at_a_time_and_an_epoch_each(store: SubscriberStore, clock: Clock) -> None:
    store.register(CLIENT)
    store.acquire("app", "me", 2_000)
    with pytest.raises(SubscriberBusy, match='client "app"') as busy:
        store.acquire("app", "you", 3_000)
    assert '"me" has it since' in busy.value.detail
    clock.ms = 2_000
    store.acquire("app", "you", 3_000)
    found = store.find("app")
    assert found is not None
    assert (found.epoch, found.lease and found.lease.owner) == (2, "you")
    with pytest.raises(LeaseLost, match="no longer"):
        store.renew("app", "me", 4_000)
    with pytest.raises(LeaseLost, match="no longer"):
        store.move("app", "me", 7)
    store.release("app", "me")
    with pytest.raises(SubscriberBusy):
        store.acquire("app", "me", 4_000)
    store.release("app", "you")
    store.acquire("app", "me", 4_000)


def test_what_is_forgotten_cannot_be_run(store: SubscriberStore) -> None:
    store.register(CLIENT)
    store.acquire("app", "me", 2_000)
    store.forget("app")
    store.forget("app")
    assert store.subscribers() == ()
    with pytest.raises(DefinitionError, match="dropped while it ran"):
        store.move("app", "me", 5)
