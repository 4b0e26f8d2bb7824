"""The report of a batch: for the caller of an ingest, for notebooks, and as a line of the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehold.errors import LakeholdError
from lakehold.html_rows import html_rows
from lakehold.ingest.metrics import Phases
from lakehold.ingest.write.batch_effects import TableReport
from lakehold.model.readers import Waiting
from lakehold.times import iso

batches = logging.getLogger("lakehold.batches")
"""One line of JSON for each batch, at level INFO."""


@dataclass(frozen=True)
class BatchReport:
    """The outcome of one batch for the tables of its reader.

    Args:
        source: The source.
        reader: `main`, or the reader of tables that catch up.
        timestamp_ms: The batch's timestamp, epoch milliseconds.
        records: Number of messages of the tables' topics: one that two tables take counts once.
        tables: The batch's effects on each table that had messages, or from which a repeated snapshot removed rows.
        stopped: The tables that stopped in this batch, each with its error.
        waiting: The incomplete upstream transaction for which the source waits.
        malformed: Number of lines in the files of a FILES source that are not messages.
        elapsed_ms: Milliseconds from the start of planning (after a crash: of recovery) until the last table was written.
    """

    source: str
    reader: str
    timestamp_ms: int
    records: int
    tables: tuple[TableReport, ...] = ()
    stopped: Mapping[str, LakeholdError] = field(default_factory=dict)
    waiting: Waiting | None = None
    malformed: int = 0
    elapsed_ms: int = 0


class Batches(list[BatchReport]):
    """The reports of batches, which a notebook shows as one table."""

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a row for each table that a batch changed, and the errors of stopped tables."""
        columns = ("timestamp", "table", "messages", "inserted", "updated", "deleted", "errors")
        rows = [
            (iso(batch.timestamp_ms), t.table, t.records, t.inserted, t.updated, t.deleted, t.errors)
            for batch in self
            for t in batch.tables
        ]
        stopped = [f"{name}: {error.message}" for batch in self for name, error in batch.stopped.items()]
        return html_rows(columns, rows, stopped)


def changes(table: TableReport) -> dict[str, int]:
    """Return the number of changes of each kind."""
    return {
        "inserted": table.inserted,
        "updated": table.updated,
        "deleted": table.deleted,
        "repeated": table.repeated,
        "error": table.errors,
    }


def log_batch(report: BatchReport, phases: Phases) -> None:
    """Log a batch as one line of JSON."""
    if not batches.isEnabledFor(logging.INFO):
        return
    tables = [
        {"table": of.table, "messages": of.records, **changes(of), "snapshot_id": of.snapshot_id}
        for of in report.tables
    ]
    line = {
        "event": "batch",
        "source": report.source,
        "reader": report.reader,
        "mz_timestamp": report.timestamp_ms,
        "messages": report.records,
        "malformed": report.malformed,
        "milliseconds": {phase: round(seconds * 1000) for phase, seconds in phases.seconds.items()},
        "tables": tables,
        "stopped": {name: error.code for name, error in report.stopped.items()},
    }
    batches.info("%s", json.dumps(line))
