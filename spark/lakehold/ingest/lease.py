"""Holding a source: its lease is renewed while a writer works, and known to be lost before the writer commits anything."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from uuid import uuid4

from lakehold.errors import LakeholdError, LeaseLost
from lakehold.settings import Settings
from lakehold.times import iso, now_ms

log = logging.getLogger(__name__)


class Leases(Protocol):
    """Who owns what, by name."""

    def acquire(self, name: str, owner: str, lease_until_ms: int, /) -> object:
        """Take it; raises what says who has it."""

    def renew(self, name: str, owner: str, lease_until_ms: int, /) -> None:
        """Prolong the lease; raises `LeaseLost`."""

    def release(self, name: str, owner: str, /) -> None:
        """Let go of it."""


class HeldLease:
    """A lease this process holds; `confirm` before every commit."""

    def __init__(self, store: Leases, source: str, owner: str, settings: Settings) -> None:
        self._store = store
        self._source = source
        self.owner = owner
        self._lease_ms = settings.lease_ms
        self._renew_s = settings.lease_renew_ms / 1000
        self._until_ms = 0
        self._lost: LeaseLost | None = None
        self._done = threading.Event()
        self._renewer = threading.Thread(target=self._renew_until_done, name=f"lease of {source}", daemon=True)

    def acquire(self) -> None:
        """Take the source and start renewing; raises `SourceBusy` while another has it."""
        until_ms = now_ms() + self._lease_ms
        self._store.acquire(self._source, self.owner, until_ms)
        self._until_ms = until_ms
        self._renewer.start()

    def release(self) -> None:
        """Let go of the source."""
        self._done.set()
        self._renewer.join()
        if self._lost is None:
            self._store.release(self._source, self.owner)

    def confirm(self) -> None:
        """Raise `LeaseLost` unless the source is still this process's for now."""
        if self._lost is not None:
            raise self._lost
        if now_ms() >= self._until_ms:
            # A suspended process wakes up here: ask the lake before going on.
            self._renew()

    def _renew(self) -> None:
        until_ms = now_ms() + self._lease_ms
        self._store.renew(self._source, self.owner, until_ms)
        self._until_ms = until_ms

    def _renew_until_done(self) -> None:
        while not self._done.wait(self._renew_s):
            try:
                self._renew()
            except LeaseLost as lost:
                self._lost = lost
                return
            except LakeholdError as error:
                log.warning(
                    "lease of %s was not renewed, it runs until %s: %s",
                    self._source,
                    iso(self._until_ms),
                    error.message,
                )


@contextmanager
def held(store: Leases, source: str, settings: Settings) -> Iterator[HeldLease]:
    """Hold `source` inside; raises `SourceBusy` when another does."""
    lease = HeldLease(store, source, f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}", settings)
    lease.acquire()
    try:
        yield lease
    finally:
        lease.release()
