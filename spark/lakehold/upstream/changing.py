"""Exclusive changes upstream: one process per source, under a lease, by definitions that nobody can change meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from lakehold.model.lake_definitions import Definitions
from lakehold.settings import Settings
from lakehold.state.lease import HeldLease, Leases, leased
from lakehold.upstream.capturing import Capturing
from lakehold.upstream.plan.capture_steps import Steps
from lakehold.upstream.wanted.targets import Targets


@dataclass(frozen=True)
class ChangingSources:
    """Sources whose upstream objects only this process may change.

    Args:
        leases: The lease on each source, by the source's name.
        targets: Computes what the sources want upstream.
        capturing: Carries out the changes.
    """

    leases: Mapping[str, HeldLease]
    targets: Targets
    capturing: Capturing

    def release(self, source: str, before: Definitions, after: Definitions) -> Steps:
        """Remove from upstream what the definitions `before` have and those `after` do not; returns the applied steps.

        Raises:
            LeaseLost: Another process may change the source by now.
            UpstreamUnavailable: A system does not answer.
            UpstreamError: What exists upstream cannot be brought to what is wanted.
        """
        target = self.targets.between(source, before, after)
        return Steps() if target is None else self.capturing.reconcile(target, self.leases[source].confirm)

    def reconcile(
        self, source: str, before: Definitions | None = None, *, resnapshot: bool = False, with_backoff: bool = False
    ) -> Steps:
        """Bring what exists upstream of a source to the current definitions. Raises as `release` does.

        Args:
            source: Name of the source.
            before: The definitions from before a statement: what only these have is removed. None: no statement changed any.
            resnapshot: Have the connector snapshot all tables again.
            with_backoff: Keep the pause before a failed snapshot is requested again; otherwise request it at once.

        Returns:
            The steps that were applied, and hints.
        """
        defined = self.targets.definitions()
        target = self.targets.between(source, before or defined, defined)
        confirm = self.leases[source].confirm
        return (
            Steps()
            if target is None
            else self.capturing.reconcile(target, confirm, resnapshot=resnapshot, with_backoff=with_backoff)
        )

    def confirm(self) -> None:
        """Raise `LeaseLost` when another process may change one of the sources by now."""
        for lease in self.leases.values():
            lease.confirm()


@contextmanager
def changing(  # noqa: PLR0913 - what is leased, where, and with what
    sources: Collection[str], targets: Targets, capturing: Capturing, store: Leases, settings: Settings, wait_ms: int
) -> Iterator[ChangingSources]:
    """Hold the leases on `sources`; raises `SourceBusy` when another process holds one for longer than `wait_ms`."""
    with ExitStack() as stack:
        # Every process takes leases in one order, so that two never wait for each other.
        leases = {name: stack.enter_context(leased(store, name, settings, wait_ms)) for name in sorted(sources)}
        yield ChangingSources(leases, targets, capturing)
