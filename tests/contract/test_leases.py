"""Leases of sources, of their upstream objects, and of subscribers: one holder at a time, in memory and in a lake."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from lakehold.errors import DefinitionError, LakeholdError, LeaseLost, SourceBusy, SubscriberBusy
from lakehold.model.leases import Lease
from lakehold.state.batch_protocol import BatchStore
from lakehold.state.lease import Leases
from lakehold.state.store import State
from lakehold.state.subscribers import Subscriber, SubscriberKind, SubscriberStore
from lakehold.state.upstream_leases import UPSTREAM_LEASES, UpstreamLeases
from tests.contract.conftest import START_MS, Clock

CLIENT = Subscriber("shop", SubscriberKind.CLIENT, "app", "SUBSCRIBE shop.t")
OTHER = Subscriber("stock", SubscriberKind.SUBSCRIPTION, "s", "SUBSCRIBE shop.u")


@dataclass(frozen=True)
class Leased:
    """An object `shop` that can be leased, beside another one, `stock`."""

    leases: Leases
    now: Callable[[], Lease | None]
    busy: type[LakeholdError]
    is_busy: str
    is_lost: str

    def acquire(self, holder: str, until_ms: int, name: str = "shop") -> None:
        self.leases.acquire(name, holder, START_MS + until_ms)

    def renew(self, holder: str, until_ms: int) -> None:
        self.leases.renew("shop", holder, START_MS + until_ms)


def source(state: State, clock: Clock) -> Leased:
    store = BatchStore(state, clock)
    return Leased(
        store,
        lambda: store.readers("shop")["main"].lease,
        SourceBusy,
        'source "shop" is being ingested by another process',
        'this process lost the lease of source "shop"',
    )


def upstream(state: State, clock: Clock) -> Leased:
    return Leased(
        UpstreamLeases(state, clock),
        lambda: next((of.lease for of in state.store(UPSTREAM_LEASES).values() if of.source == "shop"), None),
        SourceBusy,
        'the upstream of source "shop" is being changed by another process',
        'this process lost the lease of the upstream of source "shop"',
    )


def subscriber(state: State, clock: Clock) -> Leased:
    store = SubscriberStore(state, clock)
    for new in (CLIENT, OTHER):
        store.register(new)
    return Leased(
        store,
        lambda: next(of.lease for of in store.subscribers() if of.subscriber_id == "shop"),
        SubscriberBusy,
        'client "app" is being run by another process',
        'this process lost the lease of client "app"',
    )


@pytest.fixture(params=[source, upstream, subscriber], ids=lambda make: make.__name__)
def leased(request: pytest.FixtureRequest, state: State, clock: Clock) -> Leased:
    made: Leased = request.param(state, clock)
    return made


def test_a_live_lease_excludes_others_and_names_its_holder(leased: Leased, clock: Clock) -> None:
    leased.acquire("host-1/4711", 15_000)
    clock.now_ms += 14_999
    with pytest.raises(leased.busy) as busy:
        leased.acquire("b", 30_000)
    assert busy.value.message == leased.is_busy
    assert busy.value.detail == (
        '"host-1/4711" has held the lease since 1970-01-01 00:16:40.000 UTC, until 1970-01-01 00:16:55.000 or later.'
    )
    assert "lease runs out" in busy.value.hint
    leased.acquire("b", 30_000, "stock")
    assert leased.now() == Lease("host-1/4711", START_MS, START_MS + 15_000)


def test_the_holder_renews_its_lease_even_after_its_expiry(leased: Leased, clock: Clock) -> None:
    leased.acquire("a", 15_000)
    clock.now_ms += 5_000
    leased.acquire("a", 20_000)
    leased.renew("a", 25_000)
    assert leased.now() == Lease("a", START_MS, START_MS + 25_000)
    clock.now_ms += 60_000
    leased.renew("a", 80_000)
    with pytest.raises(leased.busy):
        leased.acquire("b", 80_000)


def test_an_expired_lease_is_taken_over_and_lost(leased: Leased, clock: Clock) -> None:
    leased.acquire("a", 15_000)
    clock.now_ms += 15_000
    leased.acquire("b", 30_000)
    with pytest.raises(LeaseLost) as lost:
        leased.renew("a", 30_000)
    assert lost.value.message == leased.is_lost
    assert lost.value.detail == 'Expected "a" as the lease holder. "b" took it over at 1970-01-01 00:16:55.000 UTC.'
    leased.leases.release("shop", "a")
    assert leased.now() == Lease("b", START_MS + 15_000, START_MS + 30_000)


def test_a_released_lease_is_free_at_once(leased: Leased) -> None:
    leased.acquire("a", 15_000)
    leased.leases.release("shop", "a")
    assert leased.now() is None
    with pytest.raises(LeaseLost, match=r"lost the lease") as lost:
        leased.renew("a", 15_000)
    assert lost.value.detail == 'Expected "a" as the lease holder. No process holds it now.'
    leased.acquire("b", 15_000)
    assert leased.now() == Lease("b", START_MS, START_MS + 15_000)


def test_one_of_several_racing_processes_gets_the_lease(leased: Leased) -> None:
    def take(holder: str) -> str | None:
        try:
            leased.acquire(holder, 15_000)
        except leased.busy:
            return None
        return holder

    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            holders = [holder for holder in pool.map(take, ["a", "b", "c", "d"]) if holder]
            lease = leased.now()
            assert lease is not None
            assert holders == [lease.holder]
            leased.leases.release("shop", holders[0])


# --- subscribers ------------------------------------------------------------------------------------------------------


@pytest.fixture
def subscribers(state: State, clock: Clock) -> SubscriberStore:
    return SubscriberStore(state, clock)


def test_registering_twice_keeps_the_existing_subscriber(subscribers: SubscriberStore) -> None:
    subscribers.register(OTHER)
    assert subscribers.register(CLIENT) == CLIENT
    subscribers.acquire("shop", "me", START_MS + 1)
    subscribers.move("shop", "me", 5)
    assert subscribers.register(CLIENT).position_ms == 5
    assert subscribers.find("stock") == OTHER


def test_each_process_that_takes_a_subscriber_is_an_epoch(subscribers: SubscriberStore, clock: Clock) -> None:
    subscribers.register(CLIENT)
    for number, holder in enumerate(["a", "b", "b"], start=1):
        subscribers.acquire("shop", holder, clock.now_ms + 2)
        subscribers.renew("shop", holder, clock.now_ms + 3)
        assert [of.epoch for of in subscribers.subscribers()] == [number]
        with pytest.raises(LeaseLost, match="lost the lease"):
            subscribers.move("shop", "c", 7)
        if number == 1:
            clock.now_ms += 3
        else:
            subscribers.release("shop", holder)


def test_a_forgotten_subscriber_cannot_be_run(subscribers: SubscriberStore) -> None:
    subscribers.register(CLIENT)
    subscribers.acquire("shop", "me", START_MS + 1)
    subscribers.forget("shop")
    subscribers.forget("shop")
    assert subscribers.subscribers() == ()
    with pytest.raises(DefinitionError, match="dropped while it ran"):
        subscribers.move("shop", "me", 5)
    with pytest.raises(DefinitionError, match="dropped while it ran"):
        subscribers.renew("shop", "me", START_MS + 2)
    subscribers.release("shop", "me")
