"""What statements do upstream, around their commit: what goes leaves before it, what comes is made behind it.

So nothing is ever upstream that no definition knows of: what is cut short, the statement or the next ingest finishes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from lakehold.definitions import object_text
from lakehold.errors import CommitConflict, LakeholdError, UpstreamUnavailable
from lakehold.model.definitions import DefinitionReader, Definitions
from lakehold.sql.definition_change import DefinitionChange
from lakehold.sql.effects import Converge, Plan, Release
from lakehold.sql.explain_plan import shared_by, told
from lakehold.sql.result import Result
from lakehold.upstream.steps import Steps


class Changing(Protocol):
    """Sources that nobody else changes upstream meanwhile."""

    def release(self, source: str, before: Definitions, after: Definitions) -> Steps:
        """Take away what goes."""

    def converge(self, source: str, before: Definitions | None = None, *, anew: bool = False) -> Steps:
        """Bring what is there to what is declared, and was not `before` the statement."""

    def confirm(self) -> None:
        """Raises when somebody else may change one of them by now."""


class Upstream(Protocol):
    """What is upstream of sources that capture a database."""

    def planned(self, source: str, before: Definitions, after: Definitions, *, anew: bool = False) -> Steps:
        """What a change of the definitions would do; raises if it cannot be done."""

    def changing(self, sources: Collection[str]) -> AbstractContextManager[Changing]:
        """Holds sources until the context ends."""


@contextmanager
def converged(change: DefinitionChange, store: DefinitionReader, upstream: Upstream) -> Iterator[list[str]]:
    """Around the commit of `change`, which has been tried. Gives notices, complete when it ends.

    What is upstream of the sources is held meanwhile: an ingest that repaired it by the definitions from before the commit
    would bring back what goes. So the change is tried again on the definitions as they are then.

    Raises:
        LakeholdError: It cannot be done upstream: nothing is declared then, or the error says that it is.
    """
    notices: list[str] = []
    sources = {effect.source for effect in _effects(change)}
    if not sources:
        yield notices
        return
    with upstream.changing(sources) as alone:
        before = store.definitions()
        after = change.apply(before)
        effects = _effects(change)
        if not sources.issuperset(effect.source for effect in effects):
            raise CommitConflict("what the statement concerns was changed meanwhile", hint="Run it again.")
        comes = [effect for effect in effects if isinstance(effect, Converge)]
        for coming in comes:
            _planned(coming, before, after, upstream)
        for effect in effects:
            if isinstance(effect, Release):
                with _may_be_gone(effect.source):
                    notices += alone.release(effect.source, before, after).hints
        alone.confirm()
        yield notices
        for coming in comes:
            notices += _made(coming, before, alone).hints


def _effects(change: DefinitionChange) -> list[Converge | Release]:
    effects = (effect for decided in change.plans for effect in decided.effects)
    return [*dict.fromkeys(effect for effect in effects if isinstance(effect, Converge | Release))]


def _made(coming: Converge, before: Definitions, alone: Changing) -> Steps:
    try:
        return alone.converge(coming.source, before, anew=coming.anew)
    except LakeholdError as error:
        standing = f"What was declared stands: ALTER SOURCE {coming.source} REPAIR, or the next ingest, goes on."
        error.hint = f"{error.hint} {standing}".strip()
        raise


@contextmanager
def _may_be_gone(source: str) -> Iterator[None]:
    """What does not answer keeps no source from being dropped."""
    try:
        yield
    except UpstreamUnavailable as error:
        way_out = f"DROP SOURCE {object_text(source)} CASCADE KEEP UPSTREAM"
        gone = f"If it is gone for good, {way_out} drops the source and its tables without it."
        error.hint = f"{error.hint} {gone}".strip()
        raise


def explained(plan: Plan, before: Definitions, after: Definitions, upstream: Upstream) -> Result:
    """One row a step of a plan, and the hints as notices."""
    rows: list[tuple[str]] = []
    notices: list[str] = []
    for planned in plan.effects:
        if isinstance(planned, Converge | Release):
            steps = _planned(planned, before, after, upstream)
            rows += [(step.description,) for step in steps.steps]
            notices += steps.hints
        else:
            rows += [(line,) for line in told(planned)]
    rows += [(line,) for line in shared_by(plan, after)]
    return Result(("step",), rows, tuple(notices))


def _planned(effect: Converge | Release, before: Definitions, after: Definitions, upstream: Upstream) -> Steps:
    if isinstance(effect, Converge):
        return upstream.planned(effect.source, before, after, anew=effect.anew)
    with _may_be_gone(effect.source):
        return upstream.planned(effect.source, before, after)
