"""Everything upstream of the sources of one lake: what their statements, ingests and status ask for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from lakehold.catalog.definitions import Definitions
from lakehold.catalog.readers import Readers
from lakehold.definitions import ConnectionType
from lakehold.errors import ConnectorError, LakeholdError, UpstreamUnavailable
from lakehold.ingest.marks import Marks
from lakehold.upstream.capturing import Capturing, Target
from lakehold.upstream.places import places_of
from lakehold.upstream.steps import RestartConnector, Steps
from lakehold.upstream.wanted import wanted

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 10.0
_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 300.0


@dataclass
class _Attention:
    """When an ingest looks after a connector next: at once, every few seconds, or ever later while it fails."""

    next_s: float = 0.0
    failures: int = 0
    hints: tuple[str, ...] = ()

    def new(self, hints: tuple[str, ...]) -> list[str]:
        """Those that were not told the last time."""
        told, self.hints = self.hints, hints
        return [hint for hint in hints if hint not in told]

    def went_well(self) -> None:
        self.failures = 0
        self.next_s = time.monotonic() + _LOOK_EVERY_S

    def failed(self) -> float:
        """Returns the seconds until the next try."""
        pause_s = min(_FIRST_PAUSE_S * 2.0**self.failures, _LONGEST_PAUSE_S)
        self.failures += 1
        self.next_s = time.monotonic() + pause_s
        return pause_s


class CapturedSources:
    """The sources that capture a database; of other sources every method does nothing.

    Args:
        definitions: Reads what is declared.
        readers: The readers of a source: how far the lake is.
        timeout_s: How long a system may stay silent.
    """

    def __init__(
        self, definitions: Callable[[], Definitions], readers: Callable[[str], Readers], timeout_s: float
    ) -> None:
        self._definitions = definitions
        self._readers = readers
        self._capturing = Capturing(timeout_s)
        self._attention: dict[str, _Attention] = {}

    def planned(self, source: str, before: Definitions, after: Definitions, *, anew: bool = False) -> Steps:
        """What a change of the definitions would do upstream; `anew`: with a new snapshot of all tables.

        Raises:
            UpstreamUnavailable: A system does not answer.
            UpstreamError: What is there cannot be brought to what is wanted.
        """
        target = self._target(source, before, after)
        return Steps() if target is None else self._capturing.plan(target, anew=anew)

    def release(self, source: str, before: Definitions, after: Definitions) -> Steps:
        """Take away upstream what `before` has and `after` has not. Raises as `planned` does."""
        target = self._target(source, before, after)
        return Steps() if target is None else self._capturing.converge(target)

    def converge(self, source: str, before: Definitions | None = None, *, anew: bool = False) -> Steps:
        """Bring what is upstream of a source to what is declared now; `before` a statement, if one declares tables.

        Raises as `planned` does.
        """
        defined = self._definitions()
        target = self._target(source, before or defined, defined)
        return Steps() if target is None else self._capturing.converge(target, anew=anew)

    def tend(self, source: str) -> None:
        """Before an ingest: repair what differs, restart what failed, and say so in the log.

        It is not done with every call: every few seconds, and ever more rarely while the connector fails.

        Raises:
            UpstreamError: The database has gone back, or changes are lost: nothing of the source is to be read.
        """
        attention = self._attention.setdefault(source, _Attention())
        if time.monotonic() < attention.next_s:
            return
        try:
            done = self.converge(source)
        except (UpstreamUnavailable, ConnectorError) as error:
            pause_s = attention.failed()
            log.warning("source %s: %s. %s Tried again in %.0f s", source, error.message, error.detail, pause_s)
            return
        restarted = [step for step in done.steps if isinstance(step, RestartConnector)]
        for step in done.steps:
            if step not in restarted:
                log.warning("source %s is brought to what is declared: %s", source, step.told)
        for hint in attention.new(done.hints):
            log.warning("source %s: %s", source, hint)
        if restarted:
            pause_s = attention.failed()
            reason = restarted[0].reason
            log.warning(
                "source %s: its connector failed and was restarted: %s. Next look in %.0f s", source, reason, pause_s
            )
            return
        attention.went_well()

    def awaited(self, source: str) -> frozenset[str]:
        """The tables, by object id, of which the connector has not said that their snapshot is complete."""
        defined = self._definitions()
        target = self._target(source, defined, defined)
        return frozenset() if target is None else self._capturing.awaited(target)

    def problems(self) -> list[str]:
        """A line for each source whose connector does not run or has lost changes, and for each table that is gone."""
        defined = self._definitions()
        return [
            f"source {name}: {problem}"
            for name in sorted(defined.sources)
            for problem in self._problems_of(name, defined)
        ]

    def _problems_of(self, name: str, defined: Definitions) -> Sequence[str]:
        try:
            target = self._target(name, defined, defined)
            if target is None:
                return ()
            status = self._capturing.status(target)
            if status is not None and status.is_running:
                return self._capturing.missing(target)
        except LakeholdError as error:
            return (error.message,)
        if status is None:
            return (f"there is no connector {target.wanted.connector}; the next ingest makes it",)
        if status.is_failed:
            return (f"its connector failed: {status.reason}",)
        return (f"its connector is {status.connector.lower()}",)

    def _target(self, name: str, before: Definitions, after: Definitions) -> Target | None:
        """None: the source captures nothing, or has no tables now and before."""
        stays = name in after.sources
        defined = after if stays else before
        entry = defined.sources[name]
        capture = entry.definition.capture
        tables = after.tables_of(name) if stays else ()
        released = [e.definition.topic for e in before.tables_of(name)] if name in before.sources else []
        if capture is None or not (tables or released):
            return None
        places = places_of(entry.definition, capture, defined)
        ids = {table.object_id for table in tables}
        ids_before = {table.object_id for table in before.tables_of(name)} if name in before.sources else set()
        declared = frozenset(ids - ids_before) if ids != ids_before else None
        passed = self._passed(name, ids) if capture.database is ConnectionType.POSTGRES else None
        return Target(
            wanted(entry, capture, tables, places, passed=passed, released=released, declared=declared), places
        )

    def _passed(self, source: str, ids: Collection[str]) -> int | None:
        """The highest position of the database's log that any of the tables has applied."""
        progress = [p for state in self._readers(source).values() for p in state.tables.values() if p.object_id in ids]
        marks = [Marks.from_json(p.marks) for p in progress]
        positions = [position for each in marks for position in each.passed.values()]
        positions += [each.snapshot.position for each in marks if each.snapshot is not None]
        return max((max(position[0], position[1]) for position in positions), default=None)
