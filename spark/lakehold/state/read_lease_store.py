"""Read leases as rows of `mz_catalog.mz_reads`: history that maintenance must keep for long reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakehold.state.rows import Rows
from lakehold.state.store import State
from lakehold.times import now_ms


@dataclass(frozen=True)
class StoredReadLease:
    """A read lease: it keeps `tables` from `from_ms` on (inclusive), and counts until `until_ms` (exclusive)."""

    read_id: str
    tables: tuple[str, ...]
    from_ms: int
    until_ms: int


READS = Rows("mz_catalog.mz_reads", StoredReadLease, {"read_id": "id"})


class ReadLeaseStore:
    """A store of a lake's read leases.

    Args:
        state: The state tables.
        clock: Epoch milliseconds: a lease that was not renewed in time has ended.
    """

    def __init__(self, state: State, clock: Callable[[], int] = now_ms) -> None:
        self._leases = state.store(READS)
        self._clock = clock

    def leases(self) -> tuple[StoredReadLease, ...]:
        """Return the live read leases."""
        return tuple(lease for lease in self._leases.values() if lease.until_ms > self._clock())

    def put(self, lease: StoredReadLease) -> None:
        """Add a read lease, or replace the one with its id."""
        self._replace(lease.read_id, [lease])

    def remove(self, read_id: str) -> None:
        """Remove a read lease; does nothing if it does not exist."""
        self._replace(read_id, [])

    def _replace(self, read_id: str, with_leases: list[StoredReadLease]) -> None:
        def apply(leases: tuple[StoredReadLease, ...]) -> list[StoredReadLease]:
            others = [lease for lease in leases if lease.read_id != read_id]
            return [lease for lease in (*others, *with_leases) if lease.until_ms > self._clock()]

        self._leases.change(apply)
