"""Read leases as rows of `mz_catalog.mz_reads`: history that maintenance must keep for long reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakehold.state.rows import Rows
from lakehold.state.store import State
from lakehold.times import now_ms


@dataclass(frozen=True)
class LongRead:
    """A read lease: it keeps `tables` from `from_ms` on (inclusive), and counts until `until_ms` (exclusive)."""

    read_id: str
    tables: tuple[str, ...]
    from_ms: int
    until_ms: int


READS = Rows("mz_catalog.mz_reads", LongRead, {"read_id": "id"})


class LongReadStore:
    """A store of a lake's read leases.

    Args:
        state: The state tables.
        clock: Epoch milliseconds: a lease that was not renewed in time has ended.
    """

    def __init__(self, state: State, clock: Callable[[], int] = now_ms) -> None:
        self._reads = state.store(READS)
        self._clock = clock

    def reads(self) -> tuple[LongRead, ...]:
        """Return the live read leases."""
        return tuple(read for read in self._reads.values() if read.until_ms > self._clock())

    def put(self, read: LongRead) -> None:
        """Add a read lease, or replace the one with its id."""
        self._replace(read.read_id, [read])

    def remove(self, read_id: str) -> None:
        """Remove a read lease; does nothing if it does not exist."""
        self._replace(read_id, [])

    def _replace(self, read_id: str, with_reads: list[LongRead]) -> None:
        def apply(reads: tuple[LongRead, ...]) -> list[LongRead]:
            others = [read for read in reads if read.read_id != read_id]
            return [read for read in (*others, *with_reads) if read.until_ms > self._clock()]

        self._reads.change(apply)
