"""Work of the maintenance DAG: it expires history that nothing needs, and compacts small files."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakehold.orchestration.failures import Found
from lakehold.orchestration.lakes import text_of
from lakehold.progress import LogProgress
from lakehold.times import iso

if TYPE_CHECKING:
    from lakehold.lake import Lake
    from lakehold.maintenance.maintain import MaintenanceReport

log = logging.getLogger(__name__)


def maintain(lake: Lake, tables: Sequence[str], *, dry_run: bool) -> Found:
    """Maintain tables, or all if none is named, and return the failures by name; with `dry_run` only log what would be done."""

    def done(report: MaintenanceReport) -> None:
        _log_table(report, dry_run=dry_run)

    reports = lake.maintain(tables or None, dry_run=dry_run, on_table=done, progress=LogProgress())
    return {report.table: report.error for report in reports if report.error is not None}


def _log_table(report: MaintenanceReport, *, dry_run: bool) -> None:
    if report.skipped is not None:
        log.warning("skipped %s: %s", report.table, report.skipped.message)
        return
    if report.error is not None:
        log.error("%s: %s", report.table, text_of(report.error))
    kept = iso(report.kept_from_ms) if report.kept_from_ms is not None else "ever"
    log.info(
        "%s is readable since %s: %s snapshots, %s files and %s bytes %s, %s files rewritten, %s orphans",
        report.table,
        kept,
        report.snapshots,
        report.files,
        report.bytes,
        "would go" if dry_run else "went",
        report.rewritten,
        report.orphans,
    )
