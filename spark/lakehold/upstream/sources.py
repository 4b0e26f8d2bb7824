"""Everything upstream of the sources of one lake: what their statements, ingests and status ask for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from lakehold.definitions import Table, object_text
from lakehold.errors import (
    ConnectorError,
    LakeholdError,
    LeaseLost,
    SourceBusy,
    UpstreamError,
    UpstreamRefused,
    UpstreamUnavailable,
)
from lakehold.iceberg.data_tables import TableState
from lakehold.ingest.write.empty_tables import UpstreamColumns
from lakehold.ingest.write.repeats import Snapshots
from lakehold.model.definitions import Definitions
from lakehold.model.readers import Readers
from lakehold.settings import Settings
from lakehold.state.lease import Leases
from lakehold.upstream.capturing import Capturing, Target
from lakehold.upstream.changing import ChangingSources, changing
from lakehold.upstream.failure import with_way_out
from lakehold.upstream.steps import NoteMembers, RestartConnector, Steps
from lakehold.upstream.targets import Targets

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 10.0
_WHILE_BUSY_S = 1.0
_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 300.0
_CALM_S = 60.0
"""How long behind a pause nothing has to fail at least until what failed before is forgotten."""


@dataclass
class _Attention:
    """When an ingest looks after a connector next: at once, every few seconds, or ever later while it fails."""

    next_s: float = 0.0
    failures: int = 0
    forgotten_s: float = 0.0
    hints: tuple[str, ...] = ()

    def new(self, hints: tuple[str, ...]) -> list[str]:
        """Those that were not told the last time."""
        told, self.hints = self.hints, hints
        return [hint for hint in hints if hint not in told]

    def went_well(self) -> None:
        now_s = time.monotonic()
        if now_s >= self.forgotten_s:
            self.failures = 0
        self.next_s = now_s + _LOOK_EVERY_S

    def found_busy(self) -> None:
        self.next_s = time.monotonic() + _WHILE_BUSY_S

    def failed(self) -> float:
        """Returns the seconds until the next try."""
        pause_s = min(_FIRST_PAUSE_S * 2.0**self.failures, _LONGEST_PAUSE_S)
        self.failures += 1
        self.next_s = time.monotonic() + pause_s
        # A task that dies some seconds after each start runs when it is looked after next.
        self.forgotten_s = self.next_s + max(pause_s, _CALM_S)
        return pause_s


class CapturedSources:
    """The sources that capture a database; of other sources every method does nothing.

    Args:
        definitions: Reads what is declared.
        readers: The readers of a source: how far the lake is.
        leases: Says which process changes what is upstream of which source.
        settings: How long a system may stay silent, and a process without a sign of life.
        table_state: Gives a table of the lake by its full name; None: there is none.
    """

    def __init__(
        self,
        definitions: Callable[[], Definitions],
        readers: Callable[[str], Readers],
        leases: Leases,
        settings: Settings,
        table_state: Callable[[str], TableState | None],
    ) -> None:
        self._definitions = definitions
        self._targets = Targets(definitions, readers)
        self._leases = leases
        self._settings = settings
        self._capturing = Capturing(settings.upstream_timeout_ms / 1000, table_state)
        self._attention: dict[str, _Attention] = {}

    def planned(self, source: str, before: Definitions, after: Definitions, *, anew: bool = False) -> Steps:
        """What a change of the definitions would do upstream; `anew`: with a new snapshot of all tables.

        Raises:
            UpstreamUnavailable: A system does not answer.
            UpstreamError: What is there cannot be brought to what is wanted.
        """
        target = self._targets.between(source, before, after)
        return Steps() if target is None else self._capturing.plan(target, anew=anew)

    def changing(self, sources: Collection[str]) -> AbstractContextManager[ChangingSources]:
        """Sources that this process alone changes until the context ends; others that do are waited for.

        Raises:
            SourceBusy: One of them does for long.
        """
        # One that died is waited for until its lease runs out.
        return self._changing(sources, self._settings.lease_ms + self._settings.upstream_timeout_ms)

    def tend(self, source: str) -> int | None:
        """Before an ingest: repair what differs, restart what failed, and say so in the log.

        It is not done with every call: every few seconds, and ever more rarely while the connector fails; nor while another
        process changes the source. The database is told that it was looked at: one that was restored from a backup does not know.

        Returns:
            When it was looked, epoch milliseconds, as the database was told; None: it was not looked, or it is not told.

        Raises:
            DefinitionError: The source is not there any more.
            UpstreamError: The database has gone back, or changes are lost: nothing of the source is to be read.
        """
        attention = self._attention.setdefault(source, _Attention())
        if time.monotonic() < attention.next_s:
            return None
        try:
            done = self._repaired(source)
        except (SourceBusy, LeaseLost) as busy:
            attention.found_busy()
            log.info("source %s is left alone: %s. %s", source, busy.message, busy.detail)
            return None
        except (UpstreamUnavailable, UpstreamRefused, ConnectorError) as error:
            pause_s, target = attention.failed(), self._targets.now(source)
            log.warning("source %s: %s. Tried again in %.0f s", source, self._stuck(target, _reason(error)), pause_s)
            return None
        restarted = [step for step in done.steps if isinstance(step, RestartConnector)]
        for step in done.steps:
            if not isinstance(step, RestartConnector | NoteMembers):
                log.warning("source %s is brought to what is declared: %s", source, step.told)
        for hint in attention.new(done.hints):
            log.warning("source %s: %s", source, hint)
        if restarted:
            pause_s = attention.failed()
            reason = with_way_out(restarted[0].reason, source)
            log.warning(
                "source %s: its connector failed and was restarted: %s. Next look in %.0f s", source, reason, pause_s
            )
            return None
        attention.went_well()
        return self._told(source)

    def confirm_standing(self, source: str) -> None:
        """Nothing, if the source is declared and nobody changes what is upstream of it right now.

        Raises:
            SourceBusy: Another process does.
            DefinitionError: The source is not there any more.
        """
        if self._definitions().source(source).capture is not None:
            with self._changing([source], wait_ms=0):
                self._definitions().source(source)

    def snapshots(self, source: str) -> Snapshots:
        """What the connector has said of the snapshots of the tables."""
        target = self._targets.now(source)
        return Snapshots() if target is None else self._capturing.snapshots(target)

    def columns_of(self, source: str, table: Table) -> UpstreamColumns:
        """Return the columns that the database says a table has; none of one that it does not have.

        Raises:
            UpstreamUnavailable: The database does not answer.
            UpstreamRefused: It refuses.
        """
        target = self._targets.now(source)
        return UpstreamColumns() if target is None else self._capturing.columns_of(target, table.upstream or "")

    def _repaired(self, source: str) -> Steps:
        """Nothing is held where nothing is to be done: to take a lease and to let go of it are two commits in the lake."""
        planned = self._planned_now(source)
        if planned is not None and not planned.steps:
            return planned
        with self._changing([source], wait_ms=0) as alone:
            return alone.converge(source, patient=True)

    def _told(self, source: str) -> int | None:
        """Tell the database that it was looked at, and found to be the one that it was."""
        try:
            target = self._targets.now(source)
            return None if target is None else self._capturing.tell(target)
        except (UpstreamUnavailable, UpstreamRefused) as error:
            log.warning("source %s: its database is not told that it was looked at: %s", source, _reason(error))
            return None

    def _planned_now(self, source: str) -> Steps | None:
        """What is to be done; None: what is there may be half done by another process, which is not known before its end."""
        target = self._targets.now(source)
        try:
            return Steps() if target is None else self._capturing.plan(target, patient=True)
        except UpstreamUnavailable:
            raise
        except UpstreamError:
            return None

    def _changing(self, sources: Collection[str], wait_ms: int) -> AbstractContextManager[ChangingSources]:
        return changing(sources, self._targets, self._capturing, self._leases, self._settings, wait_ms)

    def problems(self) -> list[str]:
        """A line for each source of which something is not captured, with the reason, and for each table that is gone."""
        defined = self._definitions()
        return [
            f"source {name}: {problem}"
            for name in sorted(defined.sources)
            for problem in self._problems_of(name, defined)
        ]

    def _problems_of(self, name: str, defined: Definitions) -> Sequence[str]:
        target: Target | None = None
        try:
            target = self._targets.between(name, defined, defined)
            return () if target is None else self._looked_at(target)
        except LakeholdError as error:
            return (self._stuck(target, _reason(error)),)

    def _looked_at(self, target: Target) -> Sequence[str]:
        """Why something is not captured, unless all is, and a sentence for each table that is gone."""
        source, connector = target.wanted.source, target.wanted.connector
        status = self._capturing.status(target)
        if status is not None and not status.is_running:
            state = (
                f"is {status.connector.lower()}"
                if not status.is_failed
                else f"failed: {with_way_out(status.reason, source)}"
            )
            return (self._stuck(target, f"its connector {state}"),)
        left, gone = self._capturing.lacking(target)
        if status is None:
            return (self._stuck(target, f"there is no connector {connector}; the next ingest makes it"), *gone)
        coming = self._named(target, self._capturing.snapshots(target).unasked)
        goes_on = f"the next ingest, or ALTER SOURCE {object_text(source)} REPAIR, goes on"
        reason = goes_on if left.steps else "; ".join(hint for hint in left.hints if hint not in gone)
        return (_uncaptured(coming, reason), *gone) if coming and reason else gone

    def _stuck(self, target: Target | None, reason: str) -> str:
        """Why a source does not go on, behind the tables whose snapshot is not complete, as far as it is known."""
        try:
            return (
                reason
                if target is None
                else _uncaptured(self._named(target, self._capturing.snapshots(target).awaited), reason)
            )
        except LakeholdError:
            return reason

    def _named(self, target: Target, object_ids: Collection[str]) -> list[str]:
        """Full names of those of some tables that are not readable yet."""
        readers = self._targets.readers(target.wanted.source)
        progress = [each for state in readers.values() for each in state.tables.values()]
        readable = {each.object_id for each in progress if each.since_ms is not None}
        return [table.full_name for table in target.wanted.tables if table.object_id in {*object_ids} - readable]


def _uncaptured(tables: Sequence[str], reason: str) -> str:
    return f"{', '.join(tables)} {'is' if len(tables) == 1 else 'are'} not captured yet: {reason}" if tables else reason


def _reason(error: LakeholdError) -> str:
    return f"{error.message}: {error.detail.removesuffix('.')}" if error.detail else error.message
