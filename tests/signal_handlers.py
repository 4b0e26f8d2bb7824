"""Signal handlers, which commands replace when they run in the tests' own process."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def handlers_restored() -> Iterator[None]:
    """Restore the handlers of Ctrl-C and SIGTERM after a test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
