"""Effects of a batch on a table, and how they are recognised in the table's history.

A batch that runs again after a crash skips the effects that exist. Each effect is a commit of the table, a *step*:

    0    rows without a key are removed, before step 1 adds others
    1    the changes of the batch
    2    rows that a complete re-snapshot lacks are deleted
    3    rows that a repeated snapshot of this table lacks are deleted
    4    rows of messages in error are written again as they are, after step 1, so that neither 2 nor 3 deletes them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lakehold.definitions import Table
from lakehold.iceberg.data_tables import TableState, removed_rows
from lakehold.ingest.deduplicate.statistics import BatchStatistics
from lakehold.model.high_water_marks import HighWaterMarks
from lakehold.model.readers import TableProgress
from lakehold.model.summary_keys import (
    HIGH_WATER_MARKS_PROPERTY,
    OFFSETS_PROPERTY,
    SOURCE_PROPERTY,
    STEP_PROPERTY,
    TIMESTAMP_PROPERTY,
)


@dataclass(frozen=True)
class BatchIdentity:
    """The identity of a batch, which every effect carries in its snapshot summary: effects that exist are skipped.

    Args:
        source: The source.
        timestamp_ms: The batch's timestamp, epoch milliseconds.
        offsets: The end offset (exclusive) of each partition that the batch reads, as JSON.
    """

    source: str
    timestamp_ms: int
    offsets: str

    def properties(self, high_water_marks: HighWaterMarks | None, step: int = 1) -> dict[str, str]:
        """Return the entries of a step's snapshot summary; `high_water_marks` are the table's after the batch, if it has some."""
        found = {
            TIMESTAMP_PROPERTY: str(self.timestamp_ms),
            SOURCE_PROPERTY: self.source,
            OFFSETS_PROPERTY: self.offsets,
            STEP_PROPERTY: str(step),
        }
        return found if high_water_marks is None else {**found, HIGH_WATER_MARKS_PROPERTY: high_water_marks.to_json()}

    def effect(self, step: int) -> str:
        """Return a name for the batch's commit of a step to a table."""
        return f"{self.source}:{self.timestamp_ms}:{step}"


@dataclass(frozen=True)
class TableReport:
    """The effects of a batch on one table.

    Args:
        table: Its full name.
        records: Messages of its topic in the batch.
        inserted: Rows that were added, as Iceberg counts them in the snapshots' summaries.
        updated: Rows that were updated, likewise.
        deleted: Rows that were deleted, likewise.
        repeated: Changes that were skipped, because an earlier change had their effect already.
        errors: Messages that cannot be applied.
        snapshot_id: The table's snapshot after the batch; None: the batch wrote nothing to the table.
        left_out: Parts of messages that no table can hold, in sentences, if the batch before did not have them.
    """

    table: str
    records: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    repeated: int = 0
    errors: int = 0
    snapshot_id: int | None = None
    left_out: tuple[str, ...] = ()


def effect_of(state: TableState, batch: BatchIdentity, step: int) -> Mapping[str, str] | None:
    """Find the summary of the snapshot with this batch's step; None if there is none."""
    of_batch = state.of_batch(batch.source, batch.timestamp_ms)
    return next((s.summary for s in of_batch if s.summary.get(STEP_PROPERTY) == str(step)), None)


def progress_after(state: TableState, source: str, timestamp_ms: int, before: TableProgress) -> TableProgress | None:
    """Return a table's progress after a batch whose changes (step 1) its history has; None if it lacks them.

    If step 2 is missing, the re-snapshot counts as incomplete again: a later batch completes it, and deletes the rows.
    """
    of_batch = [snapshot.summary for snapshot in state.of_batch(source, timestamp_ms)]
    steps = {summary.get(STEP_PROPERTY) for summary in of_batch}
    if "1" not in steps:
        return None
    high_water_marks = HighWaterMarks.from_json(of_batch[0].get(HIGH_WATER_MARKS_PROPERTY))
    snapshot = high_water_marks.snapshot
    if snapshot is not None and snapshot.complete and snapshot.replaces_through is not None and "2" not in steps:
        high_water_marks = replace(high_water_marks, snapshot=replace(snapshot, complete=False, end_seen=True))
    return replace(before, high_water_marks=high_water_marks)


def report_of(
    table: Table, statistics: BatchStatistics, written: TableState | None, batch: BatchIdentity
) -> TableReport:
    """Report the effects of the batch on the table, from the table's history."""
    report = TableReport(
        table=table.full_name, records=statistics.records, repeated=statistics.repeated, errors=statistics.errors
    )
    return counted(report, written, batch)


def counted(report: TableReport, written: TableState | None, batch: BatchIdentity) -> TableReport:
    """Return the report with the batch's counts from the history of the table as `written`."""
    found = [effect_of(written, batch, step) for step in (0, 1, 2, 3)] if written is not None else []
    summaries = [summary for summary in found if summary is not None]

    def total(*names: str) -> int:
        return sum(int(summary[name]) for summary in summaries for name in names if name in summary)

    merged = "spark.merge-into.num-target-rows-"
    plain = [s for s in summaries if f"{merged}inserted" not in s]
    added = sum(int(s.get("added-records", 0)) for s in plain)
    removed = sum(map(removed_rows, plain))
    return replace(
        report,
        inserted=total(f"{merged}inserted") + added,
        updated=total(f"{merged}updated"),
        deleted=total(f"{merged}deleted") + removed,
        snapshot_id=written.snapshot_id if written is not None else None,
    )
