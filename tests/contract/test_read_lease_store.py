"""Long reads hold a lease in the lake as long as they run and need old history."""

from __future__ import annotations

from pyiceberg.catalog import Catalog

from lakehold.state.iceberg_state import IcebergState
from lakehold.state.read_lease_store import ReadLeaseStore, StoredReadLease
from lakehold.subscribe.read_leases import ReadLeases
from lakehold.times import now_ms
from tests.waiting import wait_for


def test_a_lease_exists_until_it_is_released_or_expires(catalog: Catalog) -> None:
    now = 1_000
    store = ReadLeaseStore(IcebergState(catalog), lambda: now)
    one, two = StoredReadLease("1", ("s.t", "s.u"), 5, 2_000), StoredReadLease("2", ("s.t",), 6, 1_500)
    store.put(one)
    store.put(two)
    assert store.leases() == (one, two)
    renewed = StoredReadLease("1", ("s.t", "s.u"), 7, 3_000)
    store.put(renewed)
    now = 1_500
    assert store.leases() == (renewed,)
    store.remove("1")
    store.remove("1")
    assert store.leases() == ()


def test_a_read_has_a_lease_only_while_it_needs_old_history(catalog: Catalog) -> None:
    store = ReadLeaseStore(IcebergState(catalog))
    read_leases, began_ms = ReadLeases(store, grace_ms=0), now_ms()
    with read_leases.acquire(["s.t"], began_ms - 10_000) as lease:
        wait_for(lambda: len(store.leases()) == 1, within_s=20)
        assert [(lease.tables, lease.from_ms) for lease in store.leases()] == [(("s.t",), began_ms - 10_000)]
        lease.move(began_ms - 5_000)
        wait_for(lambda: [lease.from_ms for lease in store.leases()] == [began_ms - 5_000], within_s=20)
        lease.move(now_ms() + 60_000)
        wait_for(lambda: store.leases() == (), within_s=20)
        lease.move(began_ms)
        wait_for(lambda: len(store.leases()) == 1, within_s=20)
    assert store.leases() == ()


def test_a_short_read_writes_nothing(catalog: Catalog) -> None:
    store = ReadLeaseStore(IcebergState(catalog))
    before = catalog.load_table("mz_catalog.mz_reads").metadata_location
    with ReadLeases(store, grace_ms=600_000).acquire(["s.t"], 0):
        pass
    assert catalog.load_table("mz_catalog.mz_reads").metadata_location == before
