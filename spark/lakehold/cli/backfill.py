"""`lakehold backfill`: one row per table, then errors of tables that are not in sync; Ctrl-C stops between batches."""

from __future__ import annotations

from collections.abc import Sequence

from lakehold.cli.command_output import Output
from lakehold.cli.interrupt import INTERRUPTED, stop_on_signal
from lakehold.ingest.backfill import BackfillReport
from lakehold.lake import Lake
from lakehold.progress import Progress
from lakehold.sql.result import Result
from lakehold.times import iso

COLUMNS = ("table", "source", "messages", "since", "upper", "behind")
"""`messages` were read for the table. It is readable on [`since`, `upper`). `behind` is how many records its reader still has to
read; null once the table is in sync."""


def run_backfill(lake: Lake, tables: Sequence[str], output: Output, progress: Progress) -> int:
    """Bring new or stopped tables in sync with the others of their sources, and show their progress.

    Returns:
        The exit code: 0 when all tables are in sync, 1 when one has an error, `INTERRUPTED` when Ctrl-C came first.
    """
    stop = stop_on_signal()
    reports = lake.backfill(tables, progress=progress, stop=stop)
    output.result(Result(COLUMNS, [_row(report) for report in reports]))
    for report in reports:
        if not report.was_catching_up:
            output.notice(f"{report.table} is in sync with the others of source {report.source}: nothing to do")
    shown = set()
    for report in reports:
        # An error of the whole source comes with each of its tables: show it once.
        if report.error is not None and report.error.message not in shown:
            output.error(report.error)
            shown.add(report.error.message)
    if shown:
        return 1
    return 0 if all(report.is_there for report in reports) else INTERRUPTED


def _row(report: BackfillReport) -> tuple[object, ...]:
    return (
        report.table,
        report.source,
        report.messages,
        iso(report.since_ms) if report.since_ms is not None else None,
        iso(report.upper_ms) if report.upper_ms is not None else None,
        report.backlog.behind if report.backlog is not None else None,
    )
