"""Which process changes what is upstream of which source: one at a time, whoever ingests it meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog

from lakehold.errors import LeaseLost, SourceBusy
from lakehold.model.readers import Lease
from lakehold.state.state_table import Row, StateValues
from lakehold.times import now_ms

UPSTREAM_LEASES_TABLE = "mz_catalog.mz_upstream_leases"


@dataclass(frozen=True)
class UpstreamLease:
    """One row of `mz_catalog.mz_upstream_leases`: who changes what is upstream of `source`."""

    source: str
    lease: Lease


class UpstreamLeaseStore:
    """The upstream leases of the lake behind `catalog`; each change is one compare-and-set.

    Sources go by their names: one that is dropped and created again has the same things upstream.

    Args:
        catalog: The lake's catalog.
        clock: Epoch milliseconds; leases are judged by it.
    """

    def __init__(self, catalog: Catalog, clock: Callable[[], int] = now_ms) -> None:
        self._leases = StateValues(catalog, UPSTREAM_LEASES_TABLE, _from_row, _to_row)
        self._clock = clock

    def acquire(self, source: str, owner: str, lease_until_ms: int) -> None:
        """Take what is upstream of a source for `owner`; a lease that ran out is taken over.

        Raises:
            SourceBusy: Another's lease is live.
        """

        def acquired(lease: Lease | None) -> Lease:
            now = self._clock()
            if lease and lease.keeps_out(owner, now):
                raise SourceBusy(
                    f'what is upstream of source "{source}" is being changed by another process',
                    detail=lease.told,
                    hint="Run it again when that has finished; if it is gone, when its lease runs out.",
                )
            return Lease(owner, now, lease_until_ms)

        self._change(source, acquired)

    def renew(self, source: str, owner: str, lease_until_ms: int) -> None:
        """Prolong `owner`'s lease; one that ran out but was not taken over is still its own.

        Raises:
            LeaseLost: Another took it over.
        """

        def renewed(lease: Lease | None) -> Lease:
            if lease is None or lease.owner != owner:
                found = f'"{lease.owner}"' if lease else "nobody"
                raise LeaseLost(
                    f'what is upstream of source "{source}" is no longer this process\'s to change',
                    detail=f'Expected the lease of "{owner}", found that of {found}.',
                    hint="Run it again: what was begun is finished then.",
                )
            return replace(lease, until_ms=lease_until_ms)

        self._change(source, renewed)

    def release(self, source: str, owner: str) -> None:
        """Let go of it; harmless when the lease is lost already."""
        self._change(source, lambda lease: None if lease and lease.owner == owner else lease)

    def _change(self, source: str, apply: Callable[[Lease | None], Lease | None]) -> None:
        def changed(leases: tuple[UpstreamLease, ...]) -> list[UpstreamLease]:
            others = [each for each in leases if each.source != source]
            lease = apply(next((each.lease for each in leases if each.source == source), None))
            return [*others, UpstreamLease(source, lease)] if lease else others

        self._leases.change(changed)


def _from_row(row: Row) -> UpstreamLease:
    return UpstreamLease(row["source"], Lease(row["owner"], row["lease_since_ms"], row["lease_until_ms"]))


def _to_row(held: UpstreamLease) -> Row:
    lease = held.lease
    return {
        "source": held.source,
        "owner": lease.owner,
        "lease_since_ms": lease.since_ms,
        "lease_until_ms": lease.until_ms,
    }
