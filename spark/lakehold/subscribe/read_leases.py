"""Noting reads that take long, so that maintenance leaves them what they still need.

What retention promises is kept for a grace longer, so that a read has that time to end. One that is still under way when a
part of it has passed, and needs what is older than such a part, is noted in the lake, and renewed for as long as it lasts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from lakehold.errors import LakeholdError
from lakehold.state.long_reads import LongRead, LongReadStore
from lakehold.times import now_ms

log = logging.getLogger(__name__)

_LEAST_PAUSE_MS = 500
_LEAST_LEASE_MS = 30_000


class ReadLease:
    """A read under way; `move` it as it goes on.

    Args:
        noting: Where it is noted.
        tables: What it reads.
        from_ms: From when on it needs them, inclusive.
    """

    def __init__(self, read_leases: ReadLeases, tables: Sequence[str], from_ms: int) -> None:
        self._leases = read_leases
        self._read_id = uuid4().hex
        self._tables = tuple(tables)
        self._from_ms = from_ms
        self._is_written = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._until_done, name="lakehold-read", daemon=True)

    def move(self, from_ms: int) -> None:
        """What is older than `from_ms` is not needed any more."""
        self._from_ms = from_ms

    def begin(self) -> None:
        """Watch the read."""
        self._thread.start()

    def end(self) -> None:
        """The read needs nothing any more."""
        self._done.set()
        self._thread.join()
        if self._is_written:
            self._attempt(lambda: self._leases.store.remove(self._read_id))

    def _until_done(self) -> None:
        while not self._done.wait(self._leases.pause_ms / 1000):
            self._attempt(self._keep)

    def _keep(self) -> None:
        now = self._leases.clock()
        if now - self._from_ms > self._leases.pause_ms:
            until_ms = now + max(_LEAST_LEASE_MS, self._leases.grace_ms)
            self._leases.store.put(LongRead(self._read_id, self._tables, self._from_ms, until_ms))
            self._is_written = True
        elif self._is_written:
            self._leases.store.remove(self._read_id)
            self._is_written = False

    def _attempt(self, change: Callable[[], None]) -> None:
        """The read goes on whatever happens here: it is safe for the rest of the grace, or of its lease."""
        try:
            change()
        except LakeholdError as error:
            log.warning("a read of %s was not noted: %s", ", ".join(self._tables), error.message)


@dataclass(frozen=True)
class ReadLeases:
    """Notes the reads of one lake.

    Args:
        store: Where they are noted.
        grace_ms: How much longer than promised history is kept.
        clock: Epoch milliseconds.
    """

    store: LongReadStore
    grace_ms: int
    clock: Callable[[], int] = now_ms

    @property
    def pause_ms(self) -> int:
        """How long a read goes on before it is noted, and how often it is renewed."""
        return max(_LEAST_PAUSE_MS, self.grace_ms // 6)

    @contextmanager
    def acquire(self, tables: Sequence[str], from_ms: int) -> Iterator[ReadLease]:
        """What is read inside needs `tables` from `from_ms` on, inclusive."""
        lease = ReadLease(self, tables, from_ms)
        lease.begin()
        try:
            yield lease
        finally:
            lease.end()
