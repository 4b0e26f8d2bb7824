"""Read leases: long reads leave a note in the lake, so that maintenance keeps the history they still need.

Maintenance keeps history for a grace period longer than the tables' retention, and most reads end within it. A read that takes
longer than a sixth of the grace period, and still needs history older than that, records a lease in the lake, and renews it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from lakehold.errors import LakeholdError
from lakehold.state.read_lease_store import ReadLeaseStore, StoredReadLease
from lakehold.times import now_ms

log = logging.getLogger(__name__)

_LEAST_PAUSE_MS = 500
_LEAST_LEASE_MS = 30_000


class ReadLease:
    """The lease of a running read; call `move` as the read advances.

    Args:
        read_leases: The leases of the lake.
        tables: Full names of the tables that the read needs.
        from_ms: First timestamp that the read needs, inclusive.
    """

    def __init__(self, read_leases: ReadLeases, tables: Sequence[str], from_ms: int) -> None:
        self._leases = read_leases
        self._read_id = uuid4().hex
        self._tables = tuple(tables)
        self._from_ms = from_ms
        self._is_written = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_done, name="lakehold-read", daemon=True)

    def move(self, from_ms: int) -> None:
        """Release history older than `from_ms`."""
        self._from_ms = from_ms

    def begin(self) -> None:
        """Start the thread that records and renews the lease."""
        self._thread.start()

    def end(self) -> None:
        """Release the lease: the read needs no history any more."""
        self._done.set()
        self._thread.join()
        if self._is_written:
            self._attempt(lambda: self._leases.store.remove(self._read_id))

    def _renew_until_done(self) -> None:
        while not self._done.wait(self._leases.pause_ms / 1000):
            self._attempt(self._renew)

    def _renew(self) -> None:
        now = self._leases.clock()
        if now - self._from_ms > self._leases.pause_ms:
            until_ms = now + max(_LEAST_LEASE_MS, self._leases.grace_ms)
            self._leases.store.put(StoredReadLease(self._read_id, self._tables, self._from_ms, until_ms))
            self._is_written = True
        elif self._is_written:
            self._leases.store.remove(self._read_id)
            self._is_written = False

    def _attempt(self, change: Callable[[], None]) -> None:
        """Change the stored lease, and log a failure instead of raising it.

        The read continues: the grace period, or the stored lease, still protects it for a while.
        """
        try:
            change()
        except LakeholdError as error:
            log.warning("the lease of a read of %s could not be updated: %s", ", ".join(self._tables), error.message)


@dataclass(frozen=True)
class ReadLeases:
    """The read leases of one lake.

    Args:
        store: Stores the leases.
        grace_ms: How much longer than its retention a table keeps history (the grace period).
        clock: Epoch milliseconds.
    """

    store: ReadLeaseStore
    grace_ms: int
    clock: Callable[[], int] = now_ms

    @property
    def pause_ms(self) -> int:
        """Return how long a read runs before its lease is recorded, and how often the lease is renewed.

        It is a fraction of the grace period, so that there are more attempts if some fail.
        """
        return max(_LEAST_PAUSE_MS, self.grace_ms // 6)

    @contextmanager
    def acquire(self, tables: Sequence[str], from_ms: int) -> Iterator[ReadLease]:
        """Protect the history of `tables` from `from_ms` onward (inclusive) by a lease, if the block runs longer than `pause_ms`.

        Until the lease is recorded, only what the lake keeps anyway protects the read: retention, the grace period, and holds.
        """
        lease = ReadLease(self, tables, from_ms)
        lease.begin()
        try:
            yield lease
        finally:
            lease.end()
