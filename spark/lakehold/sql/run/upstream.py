"""Effects of statements upstream: lakehold removes upstream objects before the commit, and creates them after it.

Upstream objects are what a source that captures a database needs: its connector in Kafka Connect, topics and, of PostgreSQL, a
replication slot and a publication. With this order each of them belongs to a definition, even if a process dies in between. The
statement, run again, or the next ingest finishes the rest. Plans have two effects of this kind: `Release` removes, `Reconcile`
creates and changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from lakehold.errors import CommitConflict, LakeholdError, UpstreamUnavailable
from lakehold.model.lake_definitions import DefinitionReader, Definitions
from lakehold.object_names import object_text
from lakehold.sql.plan.explanation import describe, shared_by
from lakehold.sql.plan.statement_effects import Plan, Reconcile, Release
from lakehold.sql.result import Result
from lakehold.sql.run.definition_change import DefinitionChange

if TYPE_CHECKING:
    from lakehold.upstream.plan.capture_steps import Steps


class Changing(Protocol):
    """The sources whose upstream objects only this process may change now."""

    def release(self, source: str, before: Definitions, after: Definitions) -> Steps:
        """Remove the upstream objects that `before` needs and `after` does not."""

    def reconcile(self, source: str, before: Definitions | None = None, *, resnapshot: bool = False) -> Steps:
        """Bring the upstream objects to what the definitions say, which were `before` until the statement's commit."""

    def confirm(self) -> None:
        """Raise `LeaseLost` if a lease ran out, so that another process may change one of the sources by now."""


class Upstream(Protocol):
    """The upstream objects of sources that capture a database."""

    def plan_change(self, source: str, before: Definitions, after: Definitions, *, resnapshot: bool = False) -> Steps:
        """Plan the steps that a change of the definitions needs upstream; raise if they are not possible."""

    def changing(self, sources: Collection[str]) -> AbstractContextManager[Changing]:
        """Hold the leases of the sources until the context ends."""


@contextmanager
def reconciled(
    change: DefinitionChange, store: DefinitionReader, upstream_of: Callable[[], Upstream], notices: list[str]
) -> Iterator[None]:
    """Make the upstream effects of `change` before and after the block, which commits it.

    The sources are leased meanwhile: an ingest that reconciled them with the definitions from before the commit would create
    removed objects again. Other processes may change definitions until the lease, so `change` is applied again under it.

    Args:
        change: The change.
        store: Reads the definitions.
        upstream_of: Returns the upstream objects.
        notices: Gets a notice for each effect that a person should know about, also if a later effect fails.

    Raises:
        LakeholdError: An effect failed upstream. The definitions are not committed, unless the error says so.
    """
    sources = {effect.source for effect in _effects(change)}
    if not sources:
        yield
        return
    upstream = upstream_of()
    with upstream.changing(sources) as leased:
        before = store.definitions()
        after = change.apply(before)
        # `apply` has planned the statements again.
        effects = _effects(change)
        if not sources.issuperset(effect.source for effect in effects):
            raise CommitConflict("the sources of the statement were changed meanwhile", hint="Run it again.")
        reconciling = [effect for effect in effects if isinstance(effect, Reconcile)]
        for reconcile in reconciling:
            _plan_effect(reconcile, before, after, upstream)
        for effect in effects:
            if isinstance(effect, Release):
                with _hinting_at_keep_upstream(effect.source):
                    notices += leased.release(effect.source, before, after).hints
        leased.confirm()
        yield
        for reconcile in reconciling:
            notices += _reconcile(reconcile, before, leased).hints


def _effects(change: DefinitionChange) -> list[Reconcile | Release]:
    effects = (effect for planned in change.plans for effect in planned.effects)
    return [*dict.fromkeys(effect for effect in effects if isinstance(effect, Reconcile | Release))]


def _reconcile(effect: Reconcile, before: Definitions, leased: Changing) -> Steps:
    try:
        return leased.reconcile(effect.source, before, resnapshot=effect.resnapshot)
    except LakeholdError as error:
        committed = (
            f"The definitions are committed: ALTER SOURCE {effect.source} REPAIR, or the next ingest, continues."
        )
        error.hint = f"{error.hint} {committed}".strip()
        raise


@contextmanager
def _hinting_at_keep_upstream(source: str) -> Iterator[None]:
    """Add the way to drop a source without its upstream objects to errors about a system that does not answer."""
    try:
        yield
    except UpstreamUnavailable as error:
        way_out = f"DROP SOURCE {object_text(source)} CASCADE KEEP UPSTREAM"
        gone = f"If it is gone for good, {way_out} drops the source and its tables without it."
        error.hint = f"{error.hint} {gone}".strip()
        raise


def explain(plan: Plan, before: Definitions, after: Definitions, upstream: Upstream) -> Result:
    """Describe the steps of a plan, one row each, with the hints as notices; nothing is changed.

    Args:
        plan: The plan.
        before: The definitions as they are.
        after: The definitions as they would be after the plan.
        upstream: Plans the upstream steps, for which it inspects the database and Kafka Connect.

    Raises:
        LakeholdError: The database or Kafka Connect does not answer, or a step is not possible.
    """
    rows: list[tuple[str]] = []
    notices: list[str] = []
    for effect in plan.effects:
        if isinstance(effect, Reconcile | Release):
            steps = _plan_effect(effect, before, after, upstream)
            rows += [(step.description,) for step in steps.steps]
            notices += steps.hints
        else:
            rows += [(line,) for line in describe(effect)]
    rows += [(line,) for line in shared_by(plan, after)]
    return Result(("step",), rows, tuple(notices))


def _plan_effect(effect: Reconcile | Release, before: Definitions, after: Definitions, upstream: Upstream) -> Steps:
    if isinstance(effect, Reconcile):
        return upstream.plan_change(effect.source, before, after, resnapshot=effect.resnapshot)
    with _hinting_at_keep_upstream(effect.source):
        return upstream.plan_change(effect.source, before, after)
