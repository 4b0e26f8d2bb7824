"""Slots for the statements that run at the same time: each takes memory and a thread, and queries take Spark's processors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Semaphore

from lakehold.errors import UpstreamUnavailable

WAITS_S = 30.0
"""How long a statement waits for a slot."""
_LOOK_S = 0.2
"""How often a statement that waits looks whether its client has left."""


class StatementSlots:
    """A fixed number of slots, each for one statement at a time.

    Args:
        number: How many there are.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._free = Semaphore(number)

    @contextmanager
    def taken(self, stop: Event) -> Iterator[None]:
        """Take a slot until the block ends; wait for one until `stop` is set, and no longer than `WAITS_S`.

        Raises:
            UpstreamUnavailable: No slot became free.
        """
        give_up_s = time.monotonic() + WAITS_S
        while not self._free.acquire(timeout=_LOOK_S):
            if stop.is_set() or time.monotonic() > give_up_s:
                raise UpstreamUnavailable(
                    "the server is busy",
                    code="server-busy",
                    detail=f"{self._number} statements run at the same time, and none ended within {WAITS_S:.0f} seconds.",
                    hint="Run it again later. Whoever serves the lake can raise --max-statements: a SUBSCRIBE counts until it "
                    "ends.",
                )
        try:
            yield
        finally:
            self._free.release()
