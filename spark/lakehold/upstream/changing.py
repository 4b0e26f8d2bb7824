"""Changing what is upstream of sources: one process at a time, by definitions that it reads while no other can change it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from lakehold.model.definitions import Definitions
from lakehold.settings import Settings
from lakehold.state.lease import HeldLease, Leases, held
from lakehold.upstream.capturing import Capturing
from lakehold.upstream.steps import Steps
from lakehold.upstream.targets import Targets


@dataclass(frozen=True)
class ChangingSources:
    """Sources that this process alone changes upstream.

    Args:
        leases: Of each, by its name.
        targets: What they want.
        capturing: Brings it about.
    """

    leases: Mapping[str, HeldLease]
    targets: Targets
    capturing: Capturing

    def release(self, source: str, before: Definitions, after: Definitions) -> Steps:
        """Take away upstream what `before` has and `after` has not.

        Raises:
            LeaseLost: Another process may change the source by now.
            UpstreamUnavailable: A system does not answer.
            UpstreamError: What is there cannot be brought to what is wanted.
        """
        target = self.targets.between(source, before, after)
        return Steps() if target is None else self.capturing.converge(target, self.leases[source].confirm)

    def converge(
        self, source: str, before: Definitions | None = None, *, anew: bool = False, patient: bool = False
    ) -> Steps:
        """Bring what is upstream of a source to what is declared now, `before` which a statement declared something.

        Raises as `release` does; `anew`: with a new snapshot of all tables; `patient`: what failed is not tried again too soon.
        """
        defined = self.targets.definitions()
        target = self.targets.between(source, before or defined, defined)
        confirm = self.leases[source].confirm
        return Steps() if target is None else self.capturing.converge(target, confirm, anew=anew, patient=patient)

    def confirm(self) -> None:
        """Raise `LeaseLost` when another process may change one of the sources by now."""
        for lease in self.leases.values():
            lease.confirm()


@contextmanager
def changing(  # noqa: PLR0913 - what is held, where, and with what
    sources: Collection[str], targets: Targets, capturing: Capturing, store: Leases, settings: Settings, wait_ms: int
) -> Iterator[ChangingSources]:
    """Hold what is upstream of `sources`; raises `SourceBusy` when another process does for longer than `wait_ms`."""
    with ExitStack() as stack:
        # In one order everywhere, so that two that want the same never wait for each other.
        leases = {name: stack.enter_context(held(store, name, settings, wait_ms)) for name in sorted(sources)}
        yield ChangingSources(leases, targets, capturing)
