"""When a source that is followed is looked at again while it waits for the rest of a transaction."""

from __future__ import annotations

import time
from collections.abc import Callable

_WAITS_LONG_MS = 10_000
_SHARE = 5
"""Of the time at most one part in so many is spent on looks that may find nothing."""
_MAX_REST_S = 30.0
"""With each look a connector is looked after as well: it may be what the source waits for."""


class Patience:
    """Has sources rest whose transaction does not come: each look reads all that waits, which grows meanwhile.

    Args:
        clock_s: Gives the time.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._rests_until_s: dict[str, float] = {}

    def is_due(self, source: str) -> bool:
        """Whether to look at a source now."""
        return self._clock_s() >= self._rests_until_s.get(source, 0)

    def waits(self, source: str, waited_ms: int, look_s: float) -> None:
        """A source has waited so long as a look ended that took `look_s`: if that is long, it rests."""
        if waited_ms >= _WAITS_LONG_MS:
            self._rests_until_s[source] = self._clock_s() + min((_SHARE - 1) * look_s, _MAX_REST_S)
