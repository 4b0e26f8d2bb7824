"""Failpoints of batches, holds, maintenance and upstream steps, where a test can end or stop the process.

`LAKEHOLD_KILL_AT=<point>` in the environment ends the process with SIGKILL when it first reaches the point,
`LAKEHOLD_SUSPEND_AT=<point>` stops it there with SIGSTOP until SIGCONT. `<point>:<n>` waits for the n-th time. The
tests show that nothing is lost or repeated. Outside of tests neither variable is set, and a failpoint does nothing.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Literal

Point = Literal[
    "before-intent",
    "after-intent",
    "after-evolution",
    "after-errors",
    "before-merge",
    "before-publish",
    "after-merge",
    "after-table",
    "before-commit",
    "after-commit",
    "after-tags",
    "after-untag",
    "after-expiry",
    "after-compaction",
    "after-hold",
    "before-publication",
    "after-publication",
    "after-acknowledgement",
    "after-step",
]
_SIGNALS = {"LAKEHOLD_KILL_AT": signal.SIGKILL, "LAKEHOLD_SUSPEND_AT": signal.SIGSTOP}

_visits: Counter[str] = Counter()


def failpoint(point: Point) -> None:
    """End or stop the process here if the environment asks for it."""
    _visits[point] += 1
    for variable, sent in _SIGNALS.items():
        wanted, _, nth = os.environ.get(variable, "").partition(":")
        if wanted == point and int(nth or 1) == _visits[point]:
            os.kill(os.getpid(), sent)
