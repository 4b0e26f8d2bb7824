"""Waiting for something to be so, instead of for a time."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(reached: Callable[[], bool], what: str = "what was waited for", *, within_s: float = 60.0) -> None:
    """Until something is so; what does not become so in time fails the test."""
    deadline = time.monotonic() + within_s
    while not reached():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.05)
