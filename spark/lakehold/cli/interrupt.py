"""Ctrl-C and SIGTERM: the first one asks a command to stop at its next safe point, or interrupts it where it has none."""

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


def interrupt_on_signal() -> None:
    """Have Ctrl-C and SIGTERM interrupt a command that has no safe point to wait for, and clean up in its `with` blocks."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
