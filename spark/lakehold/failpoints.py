"""Named points of the batch protocol at which a test can kill the process, to prove that nothing is lost or repeated.

`LAKEHOLD_KILL_AT=<point>` in the environment ends the process with SIGKILL where the point is reached.
"""

from __future__ import annotations

import os
import signal
from typing import Literal

Point = Literal[
    "before-intent",
    "after-intent",
    "after-evolution",
    "after-errors",
    "before-merge",
    "after-merge",
    "before-commit",
    "after-commit",
]
VARIABLE = "LAKEHOLD_KILL_AT"


def reach(point: Point) -> None:
    """Die here if the environment says so."""
    if os.environ.get(VARIABLE) == point:
        os.kill(os.getpid(), signal.SIGKILL)
