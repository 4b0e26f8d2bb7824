"""Ctrl-C: the first one asks the command to stop at its next safe point, the second one interrupts it."""

from __future__ import annotations

import signal
import threading

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells use it (128 + SIGINT)."""


def stop_on_signal() -> threading.Event:
    """Return an event that Ctrl-C and SIGTERM set; a second signal interrupts at once."""
    stop = threading.Event()

    def stopping(_signal: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, stopping)
    signal.signal(signal.SIGTERM, stopping)
    return stop
