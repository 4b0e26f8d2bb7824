"""Upstream leases: one process at a time changes the upstream objects of a source, whichever process ingests it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakehold.errors import SourceBusy
from lakehold.model.leases import Lease, LeaseRules
from lakehold.state.lease import LeaseChange, Leases
from lakehold.state.rows import Rows
from lakehold.state.store import State
from lakehold.times import now_ms


@dataclass(frozen=True)
class UpstreamLease:
    """A row of `mz_catalog.mz_upstream_leases`: the process that changes the upstream objects of `source`."""

    source: str
    lease: Lease


UPSTREAM_LEASES = Rows(
    "mz_catalog.mz_upstream_leases",
    UpstreamLease,
    {"lease.holder": "owner", "lease.since_ms": "lease_since_ms", "lease.until_ms": "lease_until_ms"},
)


class UpstreamLeases(Leases):
    """A store of a lake's upstream leases.

    Sources go by their names: a source that is dropped and created again has the same upstream objects.

    Args:
        state: The state tables.
        clock: Epoch milliseconds; leases expire by it.
    """

    def __init__(self, state: State, clock: Callable[[], int] = now_ms) -> None:
        super().__init__(clock)
        self._leases = state.store(UPSTREAM_LEASES)

    def _change_lease(self, name: str, apply: LeaseChange) -> None:
        def changed(leases: tuple[UpstreamLease, ...]) -> list[UpstreamLease]:
            others = [each for each in leases if each.source != name]
            lease = apply(next((each.lease for each in leases if each.source == name), None), _rules(name))
            return [*others, UpstreamLease(name, lease)] if lease else others

        self._leases.change(changed)


def _rules(source: str) -> LeaseRules:
    return LeaseRules(
        what=f'the upstream of source "{source}"',
        used="changed",
        busy=SourceBusy,
        when_busy="Run it again when that process has finished; if it died, when its lease runs out.",
        when_lost="Run it again: that finishes what was begun.",
    )
