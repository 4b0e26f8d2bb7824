"""A wait for a condition, in place of a sleep."""

from __future__ import annotations

import time
from collections.abc import Callable

_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5


def wait_for(reached: Callable[[], bool], what: str = "the condition", *, within_s: float = 60.0) -> None:
    """Wait until a condition holds; if it does not hold in time, the test fails.

    A check may be work, as an ingest is: it is repeated after as long a pause, or it would take the processor from the servers
    and workers that it waits for.
    """
    deadline = time.monotonic() + within_s
    while True:
        began = time.monotonic()
        if reached():
            return
        now = time.monotonic()
        assert now < deadline, f"not within {within_s} s: {what}"
        time.sleep(min(max(_PAUSE_S, now - began), _LONGEST_PAUSE_S))
