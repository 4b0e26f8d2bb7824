"""`lakehold ingest`: a row for each batch, errors of stopped tables and sources; Ctrl-C ends it between batches."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Protocol

from lakehold.cli.command_output import Output
from lakehold.cli.interrupt import INTERRUPTED, stop_on_signal
from lakehold.cli.poll_backoff import PollBackoff, pause_after
from lakehold.cli.turns import take_turns
from lakehold.errors import LakeholdError
from lakehold.ingest.batch_report import BatchReport
from lakehold.ingest.several_sources import Progressed, SourceFailed
from lakehold.lake import Lake
from lakehold.model.backlog import Backlog, backlogs
from lakehold.model.readers import MAIN_READER, Waiting
from lakehold.model.shared_sources import together
from lakehold.overview.words import count
from lakehold.progress import Progress, Task
from lakehold.sql.result import Result
from lakehold.times import iso, now_ms

COLUMNS = ("mz_timestamp", "at", "table", "messages", "inserted", "updated", "deleted", "repeated", "errors")
"""One row for each table that a batch changed. `repeated` messages were applied before; `errors` could not be applied."""
_FIRST_PAUSE_S = 2.0
_MAX_PAUSE_S = 30.0
_TURN_S = 10.0
"""How long a source that is followed begins batches before another one that is due has its turn."""
_IDLE_MS = 10_000
_WAITING_MS = 10_000
"""How long a source that is followed may wait for the rest of a transaction before a notice reports it."""


class BatchesTogether(Protocol):
    """Ingests sources as `Lake.batches_together` does."""

    def __call__(
        self, sources: Sequence[str], *, idle_ms: int = ..., turn_s: float | None = ...
    ) -> Generator[Progressed, None, None]:
        """Yield a report for each batch."""


@dataclass
class _Shown:
    """The problems that were shown already, so that each is shown once.

    Attributes:
        stopped: The message that stopped each table, by name.
        failed: Sources that cannot be ingested.
        waiting: The transaction that each reader of a source waits for, by source and reader.
    """

    stopped: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    waiting: dict[tuple[str, str], Waiting] = field(default_factory=dict)


def run_ingest(lake: Lake, sources: Sequence[str] | None, output: Output, progress: Progress, *, follow: bool) -> int:
    """Ingest once, or until Ctrl-C; a batch that has begun is finished first.

    Args:
        lake: The lake.
        sources: Names of sources; None: all that have tables.
        output: Where rows and errors go.
        progress: Shows how many messages were read.
        follow: Whether to continue with new records.

    Returns:
        The exit code: 0, 1 when a source failed or a table is stopped, `INTERRUPTED` when Ctrl-C came before the end.
        Following has no end: Ctrl-C is no failure there.

    Raises:
        DefinitionError: A source does not exist; nothing was ingested.
    """
    stop = stop_on_signal()
    defined = lake.definitions.definitions()
    groups = [_Group(names) for names in together(defined.sources_with_tables if sources is None else sources, defined)]
    names = [name for group in groups for name in group.sources]
    output.begin(COLUMNS)
    what = names[0] if len(names) == 1 else f"{len(names)} sources"
    with progress.task(f"ingesting {what}", unit="messages") as task:
        run = _Run(lake, output, task, stop, follow, is_one_of_many=len(names) > 1)
        at_once = lake.settings.sources_at_once
        take_turns(groups, run.turn, lake.batches_together, lake.batches_beside, at_once, stop)
    if stop.is_set() and not follow:
        return INTERRUPTED
    return 1 if run.shown.stopped or run.shown.failed else 0


@dataclass
class _Group:
    """Sources that share topics: one thread ingests them.

    Attributes:
        sources: Their names; sources that failed for good are no longer among them.
        pause_s: How long it pauses after its next failure.
    """

    sources: list[str]
    pause_s: float = _FIRST_PAUSE_S


@dataclass(frozen=True)
class _Run:
    """One run of the command, which its threads share."""

    lake: Lake
    output: Output
    task: Task
    stop: Event
    follow: bool
    is_one_of_many: bool
    shown: _Shown = field(default_factory=_Shown)
    backoff: PollBackoff = field(default_factory=PollBackoff)
    showing: Lock = field(default_factory=Lock)

    def turn(self, group: _Group, batches_together: BatchesTogether) -> float | None:
        """Ingest a group once. Returns the seconds until it is due again; None: it has ended."""
        began_s = time.monotonic()
        try:
            is_well, has_changes = self._ingest(group, batches_together)
        except LakeholdError as error:
            # Following survives a catalog that restarts.
            if not (self.follow and error.retryable) or error.ends_process:
                raise
            is_well, has_changes = False, False
            with self.showing:
                self.output.error(error)
        if not self.follow or not group.sources:
            return None
        if is_well:
            group.pause_s = _FIRST_PAUSE_S
            return pause_after(time.monotonic() - began_s, has_changes=has_changes)
        pause_s, group.pause_s = group.pause_s, min(group.pause_s * 2, _MAX_PAUSE_S)
        return pause_s

    def _ingest(self, group: _Group, batches_together: BatchesTogether) -> tuple[bool, bool]:
        """Ingest the sources of a group that are due; return whether all went well, and whether there were messages."""
        is_well, has_changes, began_s = True, False, time.monotonic()
        due = [source for source in group.sources if self.backoff.is_due(source)]
        idle_ms, turn_s = (_IDLE_MS, _TURN_S) if self.follow else (0, None)
        with closing(batches_together(due, idle_ms=idle_ms, turn_s=turn_s)) as batches:
            for report in batches:
                with self.showing:
                    if isinstance(report, SourceFailed):
                        is_well = False
                        self._show_failed(report, group)
                        continue
                    has_changes |= report.records > 0
                    self.task.advance(report.records, _backlog_text(self.lake, report))
                    if report.waiting is not None:
                        waited_ms = now_ms() - report.waiting.since_ms
                        self.backoff.record_wait(report.source, waited_ms, time.monotonic() - began_s)
                    _show(report, self.output, self.shown, follow=self.follow)
                if self.stop.is_set():
                    break
        return is_well, has_changes

    def _show_failed(self, failed: SourceFailed, group: _Group) -> None:
        if self.is_one_of_many:
            self.output.notice(f"source {failed.source} was not ingested")
        self.output.error(failed.error)
        # Following survives a broker that restarts, and another process that ingests the source for a while.
        if not (self.follow and failed.error.retryable) or failed.error.ends_process:
            self.shown.failed.add(failed.source)
            group.sources.remove(failed.source)


def _backlog_text(lake: Lake, report: BatchReport) -> str:
    """Describe how far a source is; for a reader that catches up, how much it has read."""
    at = f"at {iso(report.timestamp_ms)}"
    if report.reader == MAIN_READER:
        return at
    try:
        tables = lake.definitions.definitions().tables_of(report.source)
        readers = lake.batches.readers(report.source)
    except LakeholdError:
        # The batch is committed, and shown: the next one reports the error.
        return at
    left = backlogs(readers, {entry.definition.full_name: entry.definition.topic for entry in tables})
    if not left:
        return at
    come = sum(left.values(), Backlog())
    return f"{at}, {count(len(left), 'table')} behind: {come.read:,} of {come.total:,} read"


def _show(report: BatchReport, output: Output, shown: _Shown, *, follow: bool) -> None:
    """Write the rows of a batch, and each new problem once."""
    rows = [
        (
            report.timestamp_ms,
            iso(report.timestamp_ms),
            t.table,
            t.records,
            t.inserted,
            t.updated,
            t.deleted,
            t.repeated,
            t.errors,
        )
        for t in report.tables
    ]
    if rows:
        output.result(Result(COLUMNS, rows))
    if report.malformed:
        output.notice(f"{report.malformed} malformed lines are in mz_catalog.mz_source_errors")
    for table in report.tables:
        shown.stopped.pop(table.table, None)
        for sentence in table.left_out:
            output.notice(f"{table.table}: {sentence}")
    for name, error in report.stopped.items():
        if shown.stopped.get(name) != error.message:
            output.error(error)
        shown.stopped[name] = error.message
    waiting = report.waiting
    if waiting is None or (follow and now_ms() - waiting.since_ms < _WAITING_MS):
        return
    reader = (report.source, report.reader)
    if waiting != shown.waiting.get(reader):
        tables = ", ".join(waiting.tables)
        output.notice(f"{tables}: waiting for the rest of {waiting.what}. {waiting.detail}")
    shown.waiting[reader] = waiting
