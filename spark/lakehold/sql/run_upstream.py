"""What statements do upstream, around their commit: what goes leaves before it, what comes is made behind it.

So nothing is ever upstream that no definition knows of: what is cut short, the statement or the next ingest finishes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from lakehold.catalog.definitions import Definitions
from lakehold.errors import LakeholdError
from lakehold.sql.effects import Converge, Plan, Release
from lakehold.sql.explain_plan import shared_by, told
from lakehold.sql.result import Result
from lakehold.upstream.steps import Steps


class Upstream(Protocol):
    """What is upstream of sources that capture a database."""

    def planned(self, source: str, before: Definitions, after: Definitions, *, anew: bool = False) -> Steps:
        """What a change of the definitions would do; raises if it cannot be done."""

    def release(self, source: str, before: Definitions, after: Definitions) -> Steps:
        """Take away what goes."""

    def converge(self, source: str, before: Definitions | None = None, *, anew: bool = False) -> Steps:
        """Bring what is there to what is declared, and was not `before` the statement."""


@contextmanager
def converged(
    plans: Sequence[Plan], before: Definitions, after: Definitions, upstream: Upstream
) -> Iterator[list[str]]:
    """Around the commit of `plans`, which leads from `before` to `after`. Gives notices, complete when it ends.

    Raises:
        LakeholdError: It cannot be done upstream: nothing is declared then, or the error says that it is.
    """
    notices: list[str] = []
    effects = [effect for plan in plans for effect in plan.effects]
    comes = dict.fromkeys(effect for effect in effects if isinstance(effect, Converge))
    goes = dict.fromkeys(effect for effect in effects if isinstance(effect, Release))
    for coming in comes:
        upstream.planned(coming.source, before, after, anew=coming.anew)
    for going in goes:
        notices += upstream.release(going.source, before, after).hints
    yield notices
    for going in goes:
        # An ingest that still knew what goes may have brought it back.
        upstream.release(going.source, before, after)
    for coming in comes:
        try:
            notices += upstream.converge(coming.source, before, anew=coming.anew).hints
        except LakeholdError as error:
            standing = f"What was declared stands: ALTER SOURCE {coming.source} REPAIR, or the next ingest, goes on."
            error.hint = f"{error.hint} {standing}".strip()
            raise


def explained(plan: Plan, before: Definitions, after: Definitions, upstream: Upstream) -> Result:
    """One row a step of a plan, and the hints as notices."""
    rows: list[tuple[str]] = []
    notices: list[str] = []
    for planned in plan.effects:
        if isinstance(planned, Converge | Release):
            anew = isinstance(planned, Converge) and planned.anew
            steps = upstream.planned(planned.source, before, after, anew=anew)
            rows += [(step.told,) for step in steps.steps]
            notices += steps.hints
        else:
            rows += [(line,) for line in told(planned)]
    rows += [(line,) for line in shared_by(plan, after)]
    return Result(("step",), rows, tuple(notices))
