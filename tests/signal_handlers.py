"""Handlers of signals, which commands that run in the tests' own process take for themselves."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def handlers_restored() -> Iterator[None]:
    """Ctrl-C and SIGTERM do behind a test what they did before it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
