"""Named points of batches, holds and maintenance, where a test can end or stop the process: nothing is lost or repeated.

`LAKEHOLD_KILL_AT=<point>` in the environment ends the process with SIGKILL where the point is first reached,
`LAKEHOLD_SUSPEND_AT=<point>` stops it there with SIGSTOP until SIGCONT; `<point>:<n>` where it is reached for the n-th time.
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

_reached: Counter[str] = Counter()


def reach(point: Point) -> None:
    """End or stop here if the environment says so."""
    _reached[point] += 1
    for variable, sent in _SIGNALS.items():
        wanted, _, nth = os.environ.get(variable, "").partition(":")
        if wanted == point and int(nth or 1) == _reached[point]:
            os.kill(os.getpid(), sent)
