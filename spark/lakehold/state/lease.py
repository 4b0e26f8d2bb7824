"""Leases: stored with their objects, renewed while a process works, and found lost before it commits anything."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

from lakehold.errors import LakeholdError, LeaseLost, SourceBusy, SubscriberMissing
from lakehold.model.leases import Lease, LeaseRules, released
from lakehold.settings import Settings
from lakehold.times import iso, now_ms

log = logging.getLogger(__name__)

_TRIES_EVERY_S = 0.2

LeaseChange = Callable[[Lease | None, LeaseRules], Lease | None]
"""Returns the new lease; raises to refuse."""


class Leases(ABC):
    """A store of objects that one process at a time may change, by name. Each change of a lease is one compare-and-set.

    Args:
        clock: Epoch milliseconds; leases expire by it.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock

    @abstractmethod
    def _change_lease(self, name: str, apply: LeaseChange) -> None:
        """Replace the lease of an object by `apply(lease, its rules)`."""

    def acquire(self, name: str, holder: str, lease_until_ms: int) -> None:
        """Take the lease for `holder`, even from another holder whose lease ran out.

        Raises:
            SourceBusy: Another's lease is live; for a subscriber `SubscriberBusy`.
        """
        self._change_lease(name, lambda lease, rules: rules.acquired(lease, holder, self._clock(), lease_until_ms))

    def renew(self, name: str, holder: str, lease_until_ms: int) -> None:
        """Prolong `holder`'s lease, even one that ran out if no other process took it.

        Raises:
            LeaseLost: Another process took it over.
        """
        self._change_lease(name, lambda lease, rules: replace(rules.held_by(lease, holder), until_ms=lease_until_ms))

    def release(self, name: str, holder: str) -> None:
        """Release the lease; harmless if it is lost already."""
        self._change_lease(name, lambda lease, _: released(lease, holder))


class HeldLease:
    """A lease that this process holds; call `confirm` before every commit.

    Args:
        store: The store of the lease.
        source: The name of the object: a source, or the id of a subscriber.
        holder: Names this process and its use of the lease.
        settings: How long a lease lasts, and how often it is renewed.
    """

    def __init__(self, store: Leases, source: str, holder: str, settings: Settings) -> None:
        self._store = store
        self._source = source
        self.holder = holder
        self._lease_ms = settings.lease_ms
        self._renew_s = settings.lease_renew_ms / 1000
        self._until_ms = 0
        self._lost: LeaseLost | SubscriberMissing | None = None
        self._done = threading.Event()
        self._renewer = threading.Thread(target=self._renew_until_done, name=f"lease of {source}", daemon=True)

    def acquire(self, wait_ms: int = 0) -> None:
        """Take the lease and start renewing; raises `SourceBusy` if another process has it for longer than `wait_ms`."""
        deadline_s = time.monotonic() + wait_ms / 1000
        while not self._until_ms:
            is_last_try = time.monotonic() >= deadline_s
            try:
                self._prolong(self._store.acquire)
            except SourceBusy:
                if is_last_try:
                    raise
                time.sleep(_TRIES_EVERY_S)
        self._renewer.start()

    def release(self) -> None:
        """Stop renewing and release the lease, if that is still to be done."""
        if self._done.is_set():
            return
        self._done.set()
        self._renewer.join()
        if self._lost is None:
            self._store.release(self._source, self.holder)

    def confirm(self) -> None:
        """Raise `LeaseLost` unless this process still holds the lease; `SubscriberMissing` if its subscriber was dropped."""
        if self._lost is not None:
            raise self._lost
        if now_ms() >= self._until_ms:
            # A suspended process wakes up here: ask the lake before going on.
            self.confirm_in_lake()

    def confirm_in_lake(self) -> None:
        """Do as `confirm`, and ask the lake also while the lease lasts: a statement may have dropped the subscriber since."""
        self._prolong(self._store.renew)

    def _prolong(self, take: Callable[[str, str, int], None]) -> None:
        until_ms = now_ms() + self._lease_ms
        take(self._source, self.holder, until_ms)
        self._until_ms = until_ms

    def _renew_until_done(self) -> None:
        while not self._done.wait(self._renew_s):
            try:
                self._prolong(self._store.renew)
            except (LeaseLost, SubscriberMissing) as lost:
                self._lost = lost
                return
            except LakeholdError as error:
                until = iso(self._until_ms)
                log.warning("lease of %s was not renewed, it runs until %s: %s", self._source, until, error.message)


@contextmanager
def leased(store: Leases, source: str, settings: Settings, wait_ms: int = 0) -> Iterator[HeldLease]:
    """Hold the lease of `source`, a source or the id of a subscriber, until the context ends.

    Raises:
        SourceBusy: Another process has it for longer than `wait_ms`.
        SubscriberBusy: Another process runs the subscriber; nothing waits for that.
    """
    lease = HeldLease(store, source, f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}", settings)
    lease.acquire(wait_ms)
    try:
        yield lease
    finally:
        lease.release()
