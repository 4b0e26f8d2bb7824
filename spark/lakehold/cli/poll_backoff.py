"""Pauses between the polls of sources that are followed."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_EVERY_S = 1.0
_WAITS_LONG_MS = 10_000
_SHARE = 5
"""At most one part in so many of the time is spent on polls that may find nothing."""
_MAX_PAUSE_S = 30.0
"""Each poll also reconciles the connector, which may be what the source waits for: pauses must end."""


def pause_after(poll_s: float, *, has_changes: bool) -> float:
    """Return how many seconds to pause after a poll that took `poll_s`.

    Polls with changes begin `POLL_EVERY_S` apart, or follow each other if they take longer: more changes came meanwhile. A poll
    without changes is followed by a whole pause, because it may have taken long for tables that are stopped.
    """
    return max(0.0, POLL_EVERY_S - poll_s) if has_changes else POLL_EVERY_S


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
        """Pause a source that has waited long for the rest of a transaction.

        The pause grows with the time that its polls take, because each of them reads all that waits again.

        Args:
            source: Its name.
            waited_ms: How long it has waited so far; a source that waits for less than 10 seconds is not paused.
            poll_s: How long the poll took that found it waiting, in seconds; sources are polled together.
        """
        if waited_ms >= _WAITS_LONG_MS:
            self._paused_until_s[source] = self._clock_s() + min((_SHARE - 1) * poll_s, _MAX_PAUSE_S)
