"""Holding a source: its lease is renewed while a process works on it, and known to be lost before that commits anything."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from uuid import uuid4

from lakehold.errors import LakeholdError, LeaseLost, SourceBusy
from lakehold.settings import Settings
from lakehold.times import iso, now_ms

log = logging.getLogger(__name__)

_TRIES_EVERY_S = 0.2


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

    def acquire(self, wait_ms: int = 0) -> None:
        """Take the source and start renewing; raises `SourceBusy` when another has it for longer than `wait_ms`."""
        deadline_s = time.monotonic() + wait_ms / 1000
        while not self._is_acquired(is_last_try=time.monotonic() >= deadline_s):
            time.sleep(_TRIES_EVERY_S)
        self._renewer.start()

    def _is_acquired(self, *, is_last_try: bool) -> bool:
        until_ms = now_ms() + self._lease_ms
        try:
            self._store.acquire(self._source, self.owner, until_ms)
        except SourceBusy:
            if is_last_try:
                raise
            return False
        self._until_ms = until_ms
        return True

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
def held(store: Leases, source: str, settings: Settings, wait_ms: int = 0) -> Iterator[HeldLease]:
    """Hold `source` inside; raises `SourceBusy` when another does for longer than `wait_ms`."""
    lease = HeldLease(store, source, f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}", settings)
    lease.acquire(wait_ms)
    try:
        yield lease
    finally:
        lease.release()
