"""Slots for the statements that run at the same time: each takes memory and a thread, and queries take Spark's processors."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Event

from lakehold.errors import UpstreamUnavailable

WAITS_S = 30.0
"""How long a statement waits for a slot."""
_LOOK_S = 0.2
"""How often a statement that waits looks whether its client has left."""


class StatementSlots:
    """A fixed number of slots, each for one statement at a time, of which no client takes more than its share.

    Args:
        number: How many there are.
        share: How many one client may take.
    """

    def __init__(self, number: int, share: int) -> None:
        self._number = number
        self._share = share
        self._taken: Counter[int] = Counter()
        self._changed = Condition()

    @contextmanager
    def taken(self, client: int, stop: Event) -> Iterator[None]:
        """Take a slot until the block ends; wait for one until `stop` is set, and no longer than `WAITS_S`.

        Args:
            client: Tells clients apart.
            stop: Ends the waiting when set.

        Raises:
            UpstreamUnavailable: No slot became free.
        """
        give_up_s = time.monotonic() + WAITS_S
        with self._changed:
            while not self._is_free(client):
                if stop.is_set() or time.monotonic() > give_up_s:
                    raise self._busy(client)
                self._changed.wait(_LOOK_S)
            self._taken[client] += 1
        try:
            yield
        finally:
            with self._changed:
                self._taken[client] -= 1
                self._changed.notify_all()

    def _is_free(self, client: int) -> bool:
        return self._taken.total() < self._number and self._taken[client] < self._share

    def _busy(self, client: int) -> UpstreamUnavailable:
        is_own = self._taken[client] >= self._share < self._number
        running = f"{self._share} statements of one token" if is_own else f"{self._number} statements"
        return UpstreamUnavailable(
            "the server is busy",
            code="server-busy",
            detail=f"{running} run at the same time, and none ended within {WAITS_S:.0f} seconds.",
            hint="Run it again later. Whoever serves the lake can raise --max-statements: a SUBSCRIBE counts until it ends.",
        )
