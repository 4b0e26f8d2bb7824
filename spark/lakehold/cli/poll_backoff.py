"""A backoff for sources that are followed while they wait for the rest of a transaction."""

from __future__ import annotations

import time
from collections.abc import Callable

_WAITS_LONG_MS = 10_000
_SHARE = 5
"""At most one part in so many of the time is spent on polls that may find nothing."""
_MAX_PAUSE_S = 30.0
"""Each poll also reconciles the connector, which may be what the source waits for: pauses must end."""


class PollBackoff:
    """A backoff for sources whose transaction stays incomplete: each poll reads all pending records, and they grow.

    Args:
        clock_s: Gives the time.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._paused_until_s: dict[str, float] = {}

    def is_due(self, source: str) -> bool:
        """Return whether to poll a source now."""
        return self._clock_s() >= self._paused_until_s.get(source, 0)

    def record_wait(self, source: str, waited_ms: int, poll_s: float) -> None:
        """Pause a source that has waited long; the pause grows with the time `poll_s` that its last poll took."""
        if waited_ms >= _WAITS_LONG_MS:
            self._paused_until_s[source] = self._clock_s() + min((_SHARE - 1) * poll_s, _MAX_PAUSE_S)
