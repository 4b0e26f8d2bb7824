"""A wait for a condition, in place of a sleep."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(reached: Callable[[], bool], what: str = "the condition", *, within_s: float = 60.0) -> None:
    """Wait until a condition holds; if it does not hold in time, the test fails."""
    deadline = time.monotonic() + within_s
    while not reached():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.05)
