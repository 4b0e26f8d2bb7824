"""`lakehold maintain`: a row for each table, then the errors of single tables."""

from __future__ import annotations

from collections.abc import Sequence

from lakehold.cli.command_output import Output
from lakehold.lake import Lake
from lakehold.progress import Progress
from lakehold.sql.result import Result
from lakehold.times import iso

COLUMNS = ("table", "kept_from", "snapshots", "files", "bytes", "tags", "rewritten", "orphans", "rows")
"""Fields of `MaintenanceReport`; `kept_from` is the time from which the table stays readable."""


def run_maintain(  # noqa: PLR0913 - a command's options
    lake: Lake, tables: Sequence[str], output: Output, progress: Progress, *, dry_run: bool, orphans: bool
) -> bool:
    """Maintain `tables`, or all, and show what was done.

    Returns:
        Whether no table failed.
    """
    reports = lake.maintain(tables or None, dry_run=dry_run, orphans=orphans, progress=progress)
    rows = [
        (
            report.table,
            iso(report.kept_from_ms) if report.kept_from_ms is not None else None,
            report.snapshots,
            report.files,
            report.bytes,
            report.tags,
            report.rewritten,
            report.orphans,
            report.rows,
        )
        for report in reports
    ]
    if rows:
        output.result(Result(COLUMNS, rows))
    would = "would go" if dry_run else "went"
    snapshots, files, size = (sum(getattr(r, what) for r in reports) for what in ("snapshots", "files", "bytes"))
    output.notice(f"{len(reports)} tables: {snapshots:,} snapshots, {files:,} files and {size:,} bytes {would}")
    for report in reports:
        if report.skipped is not None:
            output.notice(f"skipped {report.table}: {report.skipped.message}")
        if report.error is not None:
            output.error(report.error)
    return all(report.error is None for report in reports)
