"""Backfills tables: brings each new or stopped one in sync with its source. A table that fails stops alone.

`Lake.backfill` and `lakehold backfill` run this. It only chooses tables and reports on them: `Ingesting.fill` runs the batches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from threading import Event

from lakehold.errors import DefinitionError, LakeholdError
from lakehold.iceberg.data_tables import DataTables
from lakehold.ingest.batch_report import BatchReport
from lakehold.model.backlog import Backlog, backlogs
from lakehold.model.lake_definitions import DefinitionReader, Definitions
from lakehold.model.readers import MAIN_READER, Readers, TableProgress
from lakehold.progress import Progress, Task
from lakehold.state.batch_protocol import BatchStore
from lakehold.timeline.timelines import Timelines

Filled = Callable[[str, Collection[str]], Generator[BatchReport, None, None]]
"""Runs the batches that some tables need: takes a source and full names of its tables, and yields a report for each batch.

The lease of the source is held until the iterator ends or is closed.
"""


@dataclass(frozen=True)
class BackfillReport:
    """The outcome of a backfill for one table.

    Attributes:
        table: Its full name.
        source: The source that feeds it.
        since_ms: From when on it is readable, epoch milliseconds; None: it is not readable yet.
        upper_ms: The first time that is not readable yet; None before its first batch.
        messages: How many messages of its topic were read for it in this call.
        backlog: Its progress, if it is still catching up.
        was_catching_up: Whether it was not in sync with its source, or not readable, when the call began.
        is_there: Whether it is in sync with its source now, and readable.
        error: Why it is not in sync, or not readable.
    """

    table: str
    source: str
    since_ms: int | None = None
    upper_ms: int | None = None
    messages: int = 0
    backlog: Backlog | None = None
    was_catching_up: bool = True
    is_there: bool = False
    error: LakeholdError | None = None


@dataclass(frozen=True)
class Backfilling:
    """The command that fills tables of one lake.

    Args:
        definitions: The definitions, which name the source of a table.
        batches: The states of readers.
        tables: The Iceberg tables, which shows those that no source feeds.
        timelines: The readable windows of tables.
        filled: Runs the batches that tables of a source need.
    """

    definitions: DefinitionReader
    batches: BatchStore
    tables: DataTables
    timelines: Timelines
    filled: Filled

    def together(self, names: Sequence[str] | None = None) -> list[list[str]]:
        """Return the tables to fill, grouped by source.

        Args:
            names: Full names; None: all that are not in sync with their source. A table in sync that waits for its first snapshot
                is not among them: there is nothing to read for it.

        Raises:
            DefinitionError: A table does not exist, or no source feeds it.
        """
        defined = self.definitions.definitions()
        if names is None:
            joined = self._joined(defined)
            names = [name for name in sorted(defined.tables) if joined(name) is None]
        found: dict[str, list[str]] = {}
        for name in dict.fromkeys(names):
            found.setdefault(self._source(name, defined), []).append(name)
        return list(found.values())

    def run(
        self, names: Sequence[str], on_batch: Callable[[BatchReport], None], progress: Progress, stop: Event | None
    ) -> list[BackfillReport]:
        """Fill tables, source after source, and report on each of them.

        Args:
            names: Full names of the tables; a table that is in sync and readable is only reported.
            on_batch: Called with the report of each batch when it is committed.
            progress: Shows how much is read.
            stop: Ends the call when set, between two batches; None: nothing does.

        Raises:
            DefinitionError: A table does not exist, or no source feeds it; nothing was begun.
        """
        defined = self.definitions.definitions()
        sources = {name: self._source(name, defined) for name in dict.fromkeys(names)}
        there = {*filter(self._is_there(defined), sources)}
        found = {
            name: BackfillReport(name, source, was_catching_up=name not in there, is_there=name in there)
            for name, source in sources.items()
        }
        for source in dict.fromkeys(source for name, source in sources.items() if name not in there):
            wanted = [name for name, of in sources.items() if of == source and name not in there]
            if stop is not None and stop.is_set():
                break
            what = wanted[0] if len(wanted) == 1 else f"{len(wanted)} tables of {source}"
            with progress.task(f"filling {what}", unit="records") as task:
                filling = _Filling(source, wanted, on_batch, task, stop or Event())
                self._fill(filling, defined)
            found.update({name: self._report(filling, name, defined) for name in wanted})
        return [self._with_frontiers(report) for report in found.values()]

    def _source(self, name: str, defined: Definitions) -> str:
        """Return the source that feeds a table.

        Raises:
            DefinitionError: No source does.
        """
        subscription = defined.subscription_into(name)
        publishes = name if name in defined.views else subscription.name if subscription is not None else None
        if publishes is not None:
            raise DefinitionError(
                f'table "{name}" is not fed by a source',
                code="table-not-fed",
                detail="It is a materialized view." if subscription is None else "It is the output of a subscription.",
                hint=f"lakehold publish {publishes} brings it up to date.",
            )
        if name not in defined.tables and "." in name and self.tables.table_state(name) is not None:
            raise DefinitionError(
                f'table "{name}" is not fed by a source',
                code="table-not-fed",
                detail="Another program writes it, so there is nothing to catch up with.",
                hint="SHOW TABLES lists the tables that sources feed.",
            )
        return defined.table(name).definition.source

    def _is_there(self, defined: Definitions) -> Callable[[str], bool]:
        """Return a function that tests whether a table is in sync with its source, and readable."""
        joined = self._joined(defined)

        def is_there(name: str) -> bool:
            progress = joined(name)
            return progress is not None and progress.since_ms is not None

        return is_there

    def _joined(self, defined: Definitions) -> Callable[[str], TableProgress | None]:
        """Return a function that returns the progress of a table that is in sync with its source, None for others."""
        readers = cache(self.batches.readers)

        def joined(name: str) -> TableProgress | None:
            entry = defined.table(name)
            main = readers(entry.definition.source).get(MAIN_READER)
            progress = main.tables.get(name) if main is not None else None
            return progress if progress is not None and progress.object_id == entry.object_id else None

        return joined

    def _fill(self, filling: _Filling, defined: Definitions) -> None:
        topics = {e.definition.full_name: e.definition.topic for e in defined.tables_of(filling.source)}
        try:
            with closing(self.filled(filling.source, filling.wanted)) as reports:
                for report in reports:
                    filling.take(report, self.batches.readers(filling.source), topics)
                    if filling.stop.is_set():
                        break
        except LakeholdError as error:
            filling.error = error
        filling.left = backlogs(self.batches.readers(filling.source), topics)

    def _report(self, filling: _Filling, name: str, defined: Definitions) -> BackfillReport:
        report = BackfillReport(
            name, filling.source, messages=filling.messages.get(name, 0), backlog=filling.left.get(name)
        )
        if self._is_there(defined)(name):
            return replace(report, is_there=True)
        error = filling.stopped.get(name) or filling.error
        if error is None and not filling.stop.is_set():
            error = self._why(filling.source, name)
        return replace(report, error=error)

    def _why(self, source: str, name: str) -> LakeholdError:
        """Return the error that keeps a table from being in sync when no batch of this call reported one."""
        try:
            self.definitions.definitions().table(name)
            if name in self.batches.readers(source)[MAIN_READER].tables:
                self.timelines.of([name])
        except DefinitionError as error:
            # It was dropped meanwhile, or waits for its first snapshot.
            return error
        return LakeholdError(
            f'table "{name}" has not joined the others of source "{source}" yet',
            code="still-behind",
            detail="It has read everything that it can, and the others have not reached the same offsets yet.",
            hint=f"lakehold ingest {source}",
        )

    def _with_frontiers(self, report: BackfillReport) -> BackfillReport:
        line = self.timelines.readable([report.table]).get(report.table)
        return report if line is None else replace(report, since_ms=line.since_ms, upper_ms=line.upper_ms)


@dataclass
class _Filling:
    """The tables of one source while they are filled."""

    source: str
    wanted: Sequence[str]
    on_batch: Callable[[BatchReport], None]
    task: Task
    stop: Event
    stopped: dict[str, LakeholdError] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)
    left: dict[str, Backlog] = field(default_factory=dict)
    error: LakeholdError | None = None
    _shown: dict[str, Backlog] = field(default_factory=dict)

    def take(self, report: BatchReport, readers: Readers, topics: dict[str, str]) -> None:
        """Count a batch, and show the progress of the tables."""
        self.on_batch(report)
        self.stopped.update(report.stopped)
        for table in report.tables:
            self.messages[table.table] = self.messages.get(table.table, 0) + table.records
            self.stopped.pop(table.table, None)
        before = sum(shown.read for shown in self._shown.values())
        now = {name: left for name, left in backlogs(readers, topics).items() if name in self.wanted}
        # A table that has joined the others has read everything.
        joined = {name: Backlog(shown.total) for name, shown in self._shown.items() if name not in now}
        self._shown = {**joined, **now}
        reached = sum(self._shown.values(), Backlog())
        self.task.expect(reached.total)
        self.task.advance(max(0, reached.read - before))
