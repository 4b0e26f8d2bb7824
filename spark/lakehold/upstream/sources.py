"""The upstream objects (connector, slot, publication, topics) of all sources of a lake that capture a database.

Statements plan and apply changes to them, each ingest reconciles them, and the status reports what they lack.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from lakehold.definitions import Table
from lakehold.errors import (
    ConnectorError,
    LakeholdError,
    LeaseLost,
    SourceBusy,
    UpstreamError,
    UpstreamRefused,
    UpstreamUnavailable,
)
from lakehold.iceberg.data_tables import DataTables
from lakehold.ingest.envelope.upstream_columns import UpstreamColumns
from lakehold.ingest.write.repeats import Snapshots
from lakehold.model.lake_definitions import Definitions
from lakehold.model.readers import Readers
from lakehold.object_names import object_text
from lakehold.settings import Settings
from lakehold.state.lease import Leases
from lakehold.upstream.capturing import Capturing
from lakehold.upstream.changing import ChangingSources, changing
from lakehold.upstream.found.connector_failure import with_way_out
from lakehold.upstream.plan.capture_steps import RecordMembers, RecordShapes, RestartConnector, Steps
from lakehold.upstream.wanted.targets import Target, Targets

log = logging.getLogger(__name__)

INSPECT_EVERY_S = 10.0
"""Seconds between two inspections of a source while it is ingested."""
WHILE_BUSY_S = 1.0
"""Seconds until the next one if another process was changing the source."""
_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 300.0
_CALM_S = 60.0
"""Earlier failures are forgotten when nothing has failed for this long after a pause; then pauses are short again."""


@dataclass
class _ReconcileSchedule:
    """A schedule of when an ingest next reconciles a source: at once, every few seconds, or more rarely while it fails."""

    next_s: float = 0.0
    failures: int = 0
    forgotten_s: float = 0.0
    hints: tuple[str, ...] = ()

    def unreported(self, hints: tuple[str, ...]) -> list[str]:
        """Return the hints that the last call did not have."""
        reported, self.hints = self.hints, hints
        return [hint for hint in hints if hint not in reported]

    def went_well(self) -> None:
        now_s = time.monotonic()
        if now_s >= self.forgotten_s:
            self.failures = 0
        self.next_s = now_s + INSPECT_EVERY_S

    def found_busy(self) -> None:
        self.next_s = time.monotonic() + WHILE_BUSY_S

    def failed(self) -> float:
        """Lengthen the pause, and return the seconds until the next try."""
        pause_s = min(_FIRST_PAUSE_S * 2.0**self.failures, _LONGEST_PAUSE_S)
        self.failures += 1
        self.next_s = time.monotonic() + pause_s
        # A task that dies some seconds after each start is running at the next inspection.
        self.forgotten_s = self.next_s + max(pause_s, _CALM_S)
        return pause_s


class CapturedSources:
    """The upstream side of sources that capture a database; for other sources every method does nothing.

    Args:
        definitions: Reads the current definitions.
        readers: Reads the states of a source's readers, which say how far the lake is.
        leases: Says which process may change what exists upstream of which source.
        settings: Has the timeouts of upstream systems and of leases.
        tables: The tables of the lake.
    """

    def __init__(
        self,
        definitions: Callable[[], Definitions],
        readers: Callable[[str], Readers],
        leases: Leases,
        settings: Settings,
        tables: DataTables,
    ) -> None:
        self._definitions = definitions
        self._targets = Targets(definitions, readers)
        self._leases = leases
        self._settings = settings
        self._capturing = Capturing(settings.upstream_timeout_ms / 1000, tables)
        self._schedules: dict[str, _ReconcileSchedule] = {}

    def plan_change(self, source: str, before: Definitions, after: Definitions, *, resnapshot: bool = False) -> Steps:
        """Compute the steps that a change of the definitions needs upstream.

        `resnapshot` has the connector snapshot all tables again.

        Raises:
            UpstreamUnavailable: A system does not answer.
            UpstreamError: What exists upstream cannot be brought to what is wanted.
        """
        target = self._targets.between(source, before, after)
        return Steps() if target is None else self._capturing.plan(target, resnapshot=resnapshot)

    def changing(self, sources: Collection[str]) -> AbstractContextManager[ChangingSources]:
        """Let only this process change the upstream of `sources` until the context ends; waits for other processes that do.

        Raises:
            SourceBusy: Another process changes one of them for too long.
        """
        # Long enough for the lease of a process that died to run out.
        return self._changing(sources, self._settings.lease_ms + self._settings.upstream_timeout_ms)

    def reconcile(self, source: str) -> int | None:
        """Reconcile a source before an ingest: repair what differs, restart what failed, and report it in the log.

        It does so every few seconds, not with every call, and more rarely while the connector fails. It does nothing while
        another process changes the source. It records the time of its inspection in the database: a database that was restored
        from a backup has an earlier one.

        Returns:
            The recorded time, epoch milliseconds; None: the source was not inspected, or the database keeps no time.

        Raises:
            DefinitionError: The source does not exist any more.
            UpstreamError: The database has gone back, or changes are lost: nothing of the source may be read.
        """
        schedule = self._schedules.setdefault(source, _ReconcileSchedule())
        if time.monotonic() < schedule.next_s:
            return None
        try:
            done = self._repaired(source)
        except (SourceBusy, LeaseLost) as busy:
            schedule.found_busy()
            log.info("source %s is skipped: %s. %s", source, busy.message, busy.detail)
            return None
        except (UpstreamUnavailable, UpstreamRefused, ConnectorError) as error:
            pause_s, target = schedule.failed(), self._targets.now(source)
            log.warning("source %s: %s. Retrying in %.0f s", source, self._stuck(target, _reason(error)), pause_s)
            return None
        restarted = [step for step in done.steps if isinstance(step, RestartConnector)]
        for step in done.steps:
            if not isinstance(step, RestartConnector | RecordMembers | RecordShapes):
                log.warning("source %s is reconciled: %s", source, step.description)
        for hint in schedule.unreported(done.hints):
            log.warning("source %s: %s", source, hint)
        if restarted:
            pause_s = schedule.failed()
            reason = with_way_out(restarted[0].reason, source)
            log.warning(
                "source %s: its connector failed and was restarted: %s. Checking again in %.0f s",
                source,
                reason,
                pause_s,
            )
            return None
        schedule.went_well()
        return self._record_seen(source)

    def confirm_defined(self, source: str) -> None:
        """Raise if the source was dropped, or another process changes its upstream objects right now.

        An ingest that misses an upstream object calls it first: then the missing object is no fault.

        Raises:
            SourceBusy: Another process changes it.
            DefinitionError: The source does not exist any more.
        """
        if self._definitions().source(source).capture is not None:
            with self._changing([source], wait_ms=0):
                self._definitions().source(source)

    def snapshots(self, source: str) -> Snapshots:
        """Return which tables still wait for a complete snapshot, and which snapshots were repeated, as the connector reports."""
        target = self._targets.now(source)
        return Snapshots() if target is None else self._capturing.snapshots(target)

    def columns_of(self, source: str, table: Table) -> UpstreamColumns:
        """Return the columns that the database says a table has; none if it does not have the table.

        Raises:
            UpstreamUnavailable: The database does not answer.
            UpstreamRefused: It refuses.
        """
        target = self._targets.now(source)
        return UpstreamColumns() if target is None else self._capturing.columns_of(target, table.upstream or "")

    def snapshot_again(self, source: str, table: Table) -> None:
        """Have the connector snapshot one table again, because its rows have values that no message shows.

        Raises:
            SourceBusy: Another process changes the source's upstream.
            UpstreamUnavailable: A system does not answer.
            UpstreamError: The table cannot be snapshotted.
        """
        with self._changing([source], self._settings.upstream_timeout_ms) as alone:
            target = self._targets.now(source)
            if target is not None:
                self._capturing.snapshot_again(target, table.upstream or "", alone.confirm)

    def _repaired(self, source: str) -> Steps:
        """Plan and apply the steps that are left. Without any, take no lease: taking and releasing one are two commits."""
        left = self._steps_left(source)
        if left is not None and not left.steps:
            return left
        with self._changing([source], wait_ms=0) as alone:
            return alone.reconcile(source, with_backoff=True)

    def _record_seen(self, source: str) -> int | None:
        """Record the time of this inspection in the database; a database restored from a backup shows an earlier one."""
        try:
            target = self._targets.now(source)
            return None if target is None else self._capturing.record_seen(target)
        except (UpstreamUnavailable, UpstreamRefused) as error:
            log.warning(
                "source %s: the time of this inspection could not be recorded in its database: %s",
                source,
                _reason(error),
            )
            return None

    def _steps_left(self, source: str) -> Steps | None:
        """Plan the steps that are left; None if upstream does not fit together, as while another process is half done."""
        target = self._targets.now(source)
        try:
            return Steps() if target is None else self._capturing.plan(target, with_backoff=True)
        except UpstreamUnavailable:
            raise
        except UpstreamError:
            return None

    def _changing(self, sources: Collection[str], wait_ms: int) -> AbstractContextManager[ChangingSources]:
        return changing(sources, self._targets, self._capturing, self._leases, self._settings, wait_ms)

    def problems(self) -> list[str]:
        """Return a line for each source that does not capture everything, with the reason, and for each missing table."""
        defined = self._definitions()
        return [
            f"source {name}: {problem}"
            for name in sorted(defined.sources)
            for problem in self.problems_of(name, defined)
        ]

    def problems_of(self, name: str, defined: Definitions) -> Sequence[str]:
        """Return a line for each problem of one source of `defined`."""
        target: Target | None = None
        try:
            target = self._targets.between(name, defined, defined)
            return () if target is None else self._problems_upstream(target)
        except LakeholdError as error:
            return (self._stuck(target, _reason(error)),)

    def _problems_upstream(self, target: Target) -> Sequence[str]:
        """Return why some tables are not captured yet, and a sentence for each table at fault, such as a missing one."""
        source, connector = target.wanted.source, target.wanted.connector
        status = self._capturing.status(target)
        if status is not None and not status.is_running:
            state = (
                f"is {status.connector.lower()}"
                if not status.is_failed
                else f"failed: {with_way_out(status.reason, source)}"
            )
            return (self._stuck(target, f"its connector {state}"),)
        left, faults = self._capturing.faults(target)
        if status is None:
            return (self._stuck(target, f"there is no connector {connector}; the next ingest creates it"), *faults)
        unrequested = self._named(target, self._capturing.snapshots(target).unrequested)
        continues = f"the next ingest, or ALTER SOURCE {object_text(source)} REPAIR, continues"
        reason = continues if left.steps else "; ".join(hint for hint in left.hints if hint not in faults)
        return (_uncaptured(unrequested, reason), *faults) if unrequested and reason else faults

    def _stuck(self, target: Target | None, reason: str) -> str:
        """Put the tables that wait for their snapshot, if they can be found, before the reason why a source does not continue."""
        try:
            return (
                reason
                if target is None
                else _uncaptured(self._named(target, self._capturing.snapshots(target).awaited), reason)
            )
        except LakeholdError:
            return reason

    def _named(self, target: Target, object_ids: Collection[str]) -> list[str]:
        """Return the full names of the tables with these ids, without tables that are readable already."""
        readers = self._targets.readers(target.wanted.source)
        progress = [each for state in readers.values() for each in state.tables.values()]
        readable = {each.object_id for each in progress if each.since_ms is not None}
        return [table.full_name for table in target.wanted.tables if table.object_id in {*object_ids} - readable]


def _uncaptured(tables: Sequence[str], reason: str) -> str:
    return f"{', '.join(tables)} {'is' if len(tables) == 1 else 'are'} not captured yet: {reason}" if tables else reason


def _reason(error: LakeholdError) -> str:
    return f"{error.message}: {error.detail.removesuffix('.')}" if error.detail else error.message
