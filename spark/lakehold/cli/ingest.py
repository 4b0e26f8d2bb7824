"""`lakehold ingest`: a row for each batch, errors of stopped tables and sources; Ctrl-C ends it between batches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from lakehold.cli.command_output import Output
from lakehold.cli.interrupt import stop_on_signal
from lakehold.cli.poll_backoff import POLL_EVERY_S, PollBackoff, pause_after
from lakehold.ingest.batch import BatchReport
from lakehold.ingest.batch_size import CATCH_UP_S
from lakehold.ingest.several_sources import SourceFailed
from lakehold.lake import Lake
from lakehold.model.backlog import Backlog, backlogs
from lakehold.model.readers import MAIN_READER, Waiting
from lakehold.overview.words import count
from lakehold.progress import Progress
from lakehold.sql.result import Result
from lakehold.times import iso, now_ms

COLUMNS = ("mz_timestamp", "at", "table", "messages", "inserted", "updated", "deleted", "repeated", "errors")
"""One row for each table that a batch changed. `repeated` messages were applied before; `errors` could not be applied."""
_MAX_PAUSE_S = 30.0
_IDLE_MS = 10_000
_WAITING_MS = 10_000
"""How long a source that is followed may wait for the rest of a transaction before a notice reports it."""


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


def run_ingest(lake: Lake, sources: Sequence[str] | None, output: Output, progress: Progress, *, follow: bool) -> bool:
    """Ingest once, or until Ctrl-C; a batch that has begun is finished first.

    Args:
        lake: The lake.
        sources: Names of sources; None: all that have tables.
        output: Where rows and errors go.
        progress: Shows how many messages were read.
        follow: Whether to continue with new records.

    Returns:
        Whether no source failed and no table is stopped.

    Raises:
        DefinitionError: A source does not exist; nothing was ingested.
    """
    stop = stop_on_signal()
    defined = lake.definitions.definitions()
    wanted = [defined.source(name).name for name in sources] if sources is not None else defined.sources_with_tables
    what = wanted[0] if len(wanted) == 1 else f"{len(wanted)} sources"
    shown, backoff = _Shown(), PollBackoff()
    pause_s = POLL_EVERY_S
    while not stop.is_set() and (going := [source for source in wanted if source not in shown.failed]):
        is_well, has_changes = True, False
        with progress.task(f"ingesting {what}", unit="messages") as task:
            due, began_s = [source for source in going if backoff.is_due(source)], time.monotonic()
            again = {"idle_ms": _IDLE_MS, "catch_up_s": CATCH_UP_S} if follow else {}
            batches = lake.batches_together(due, **again)
            for report in batches:
                if isinstance(report, SourceFailed):
                    is_well = False
                    _show_failed(report, output, shown, follow=follow, is_one_of_many=len(wanted) > 1)
                    continue
                has_changes |= report.records > 0
                task.advance(report.records, _backlog_text(lake, report))
                if report.waiting is not None:
                    waited_ms = now_ms() - report.waiting.since_ms
                    backoff.record_wait(report.source, waited_ms, time.monotonic() - began_s)
                _show(report, output, shown, follow=follow)
                if stop.is_set():
                    batches.close()
                    break
        if not follow:
            break
        pause_s = POLL_EVERY_S if is_well else min(pause_s * 2, _MAX_PAUSE_S)
        stop.wait(pause_after(time.monotonic() - began_s, has_changes=has_changes) if is_well else pause_s)
    return not shown.stopped and not shown.failed


def _show_failed(failed: SourceFailed, output: Output, shown: _Shown, *, follow: bool, is_one_of_many: bool) -> None:
    if is_one_of_many:
        output.notice(f"source {failed.source} was not ingested")
    output.error(failed.error)
    # Following survives a broker that restarts, and another process that ingests the source for a while.
    if not (follow and failed.error.retryable):
        shown.failed.add(failed.source)


def _backlog_text(lake: Lake, report: BatchReport) -> str:
    """Describe how far a source is; for a reader that catches up, how much it has read."""
    at = f"at {iso(report.timestamp_ms)}"
    if report.reader == MAIN_READER:
        return at
    topics = {
        e.definition.full_name: e.definition.topic for e in lake.definitions.definitions().tables_of(report.source)
    }
    left = backlogs(lake.batches.readers(report.source), topics)
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
