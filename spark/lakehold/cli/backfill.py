"""`lakehold backfill`: a row for each table, why one is not with the others behind them, Ctrl-C between batches."""

from __future__ import annotations

from collections.abc import Sequence

from lakehold.cli.interrupt import INTERRUPTED, stop_on_signal
from lakehold.cli.output import Output
from lakehold.ingest.backfill import BackfillReport
from lakehold.lake import Lake
from lakehold.progress import Progress
from lakehold.sql.result import Result
from lakehold.times import iso

COLUMNS = ("table", "source", "messages", "since", "upper", "behind")


def run_backfill(lake: Lake, tables: Sequence[str], output: Output, progress: Progress) -> int:
    """Fill tables, and show where they are.

    Returns:
        The exit code: 0, 1 when one is not with the others of its source, `INTERRUPTED` when Ctrl-C came before that was known.
    """
    stop = stop_on_signal()
    reports = lake.backfill(tables, progress=progress, stop=stop)
    output.result(Result(COLUMNS, [_row(report) for report in reports]))
    for report in reports:
        if not report.was_behind:
            output.notice(f"{report.table} is with the others of source {report.source}: there was nothing to do")
    said = set()
    for report in reports:
        # What keeps a whole source from it is said once.
        if report.error is not None and report.error.message not in said:
            output.error(report.error)
            said.add(report.error.message)
    if said:
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
