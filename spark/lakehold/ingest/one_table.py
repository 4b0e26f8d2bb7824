"""Brings one table to a batch's timestamp, even if the batch has no message for it. A table that fails stops alone.

`batch.py` calls `bring_to_timestamp` for each table after it has written the batch's intent. The changes themselves are written
in `write/`; here is what else a batch shows about a table. A connector sends the first rows of a table as a *connector snapshot*,
and may do so again: in a *re-snapshot* of all its tables, or in a *repeated snapshot* of one table, which lakehold requested.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass, replace

from lakehold.definitions import Table
from lakehold.errors import LakeholdError, LeaseLost, UpstreamUnavailable
from lakehold.failpoints import failpoint
from lakehold.ingest.arriving_records import ArrivingRecords
from lakehold.ingest.deduplicate.snapshots import SnapshotReadEnds, emptied, ending_at, with_end_seen, without_end
from lakehold.ingest.leased_source import LeasedSource
from lakehold.ingest.planning import Planned
from lakehold.ingest.write.apply import TableBatch
from lakehold.ingest.write.batch_effects import BatchIdentity, TableReport
from lakehold.ingest.write.repeats import remove_gone
from lakehold.model.offsets import Offsets, TopicPartition
from lakehold.model.readers import MAIN_READER, ReaderState, TableProgress
from lakehold.spark_errors import advice, described, is_sparks, session_lost

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenBatch:
    """A batch whose intent is in the lake.

    Args:
        of: The source.
        state: The state of the reader before the batch.
        planned: The plan of the batch.
        arriving: The records of the batch.
        identity: Identifies the batch in each of its effects, so that no effect is made twice.
        started_ms: When planning the batch began (epoch milliseconds).
    """

    of: LeasedSource
    state: ReaderState
    planned: Planned
    arriving: ArrivingRecords
    identity: BatchIdentity
    started_ms: int


@dataclass(frozen=True)
class TableOutcome:
    """The outcome of a batch for one table.

    Args:
        progress: The table's progress after the batch.
        report: The effects on the table's rows; None: it had no messages, and no repeated snapshot removed rows.
        stopped: The error that stopped the table; None: it did not stop.
        is_written: Whether the table's history has the batch's changes, although it stopped.
    """

    progress: TableProgress
    report: TableReport | None = None
    stopped: LakeholdError | None = None
    is_written: bool = False


def bring_to_timestamp(batch: OpenBatch, name: str) -> TableOutcome:
    """Bring a table to the batch's timestamp. An error about the table stops this table alone; others end the batch.

    Raises:
        LeaseLost: This process no longer holds the lease of the source.
        UpstreamUnavailable: The records cannot be read now, or Spark's server has lost the session.
    """
    state = batch.state
    try:
        outcome = _OneTable(batch, name).written()
    except (LeaseLost, UpstreamUnavailable):
        raise
    except Exception as error:
        if lost := session_lost(error):
            raise lost from error
        stop = _as_stop(batch.of.tables[name].definition, error)
        if state.error is None or state.error.message != stop.message:
            # A continuous ingest tries the table again every few seconds and meets the same error: log it once.
            log.warning("table %s stopped: %s", name, stop.message, exc_info=not isinstance(error, LakeholdError))
        before = state.tables[name]
        written = batch.of.progress_with(batch.identity.timestamp_ms, name, before)
        return TableOutcome(written or before, stopped=stop, is_written=written is not None)
    failpoint("after-table")
    return outcome


class _OneTable:
    """One table in one batch, with its progress before the batch."""

    def __init__(self, batch: OpenBatch, name: str) -> None:
        self._batch, self._of, self._planned = batch, batch.of, batch.planned
        self._entry = batch.of.tables[name]
        self._table = self._entry.definition
        self._before = batch.state.tables[name]
        replaced = batch.planned.replaced
        self._read_ends = SnapshotReadEnds(
            self._of_topic(batch.planned.past_snapshots), replaced.position if replaced is not None else None
        )

    def written(self) -> TableOutcome:
        """Apply the table's messages, and what lakehold knows about the table without a message.

        That is: a re-snapshot has no row of the table, a connector snapshot has ended, or a repeated snapshot lacks some rows.
        """
        batch, of = self._batch, self._of
        report, after = None, self._emptied()
        if batch.arriving.has(self._table.topic):
            with closing(batch.arriving.of(self._table.full_name)) as arrival:
                report, after = of.applier.apply(TableBatch(batch.identity, arrival, after, self._read_ends))
        elif after.high_water_marks.snapshot is not None or self._table.topic in self._planned.fully_read:
            # The table may become readable without a message: its snapshot ends here, or its topic has nothing more to read.
            after = of.applier.finish_snapshot(batch.identity, self._table, after, self._read_ends)
        report, after = self._without_gone(report, self._with_ends(after))
        return TableOutcome(self._readable(report, after), report)

    def _emptied(self) -> TableProgress:
        """Return the progress before the batch. If a re-snapshot has no row of the table, it marks all present rows as replaced.

        The batch deletes rows that are marked so.
        """
        table, before, replaced = self._table, self._before, self._planned.replaced
        if replaced is None or table.topic not in replaced.without_rows or not table.envelope.has_positions:
            return before
        state = self._of.writing.tables.table_state(table.full_name)
        sequence_number = state.current.sequence_number if state is not None and state.current is not None else None
        return replace(before, high_water_marks=emptied(before.high_water_marks, replaced.position, sequence_number))

    def _with_ends(self, after: TableProgress) -> TableProgress:
        """Return the progress with an end offset of the connector snapshot for each partition that does not show where it ends.

        This needs that the snapshot was sent completely. The end offsets are fetched now, and include messages in open Kafka
        transactions: all rows of the snapshot lie below them.
        """
        high_water_marks = after.high_water_marks
        if after.since_ms is None and self._of.snapshots.reports_complete(self._entry.object_id):
            # Upstream reports that all rows were sent. The message that marks the last row may be unreadable.
            high_water_marks = with_end_seen(high_water_marks)
        partitions = without_end(high_water_marks, self._read_ends)
        if not partitions:
            return after
        of_topic = [TopicPartition(self._table.topic, partition) for partition in sorted(partitions)]
        ends = self._of_topic({**self._planned.ends, **self._of.reading.reader.written_ends(of_topic)})
        found = {partition: at for partition, at in ends.items() if partition in partitions}
        ended = replace(after, high_water_marks=ending_at(high_water_marks, found))
        return self._of.applier.finish_snapshot(self._batch.identity, self._table, ended, self._read_ends)

    def _without_gone(
        self, report: TableReport | None, after: TableProgress
    ) -> tuple[TableReport | None, TableProgress]:
        """Delete rows that a repeated snapshot of this table lacks, in the first batch that has read all of the snapshot."""
        snapshot = self._of.snapshots.repeated.get(self._entry.object_id)
        if snapshot is None:
            return report, after
        position = self._planned.plan.position
        removed, after = remove_gone(self._of.writing, self._batch.identity, self._entry, snapshot, after, position)
        if removed is not None and report is not None:
            removed = replace(removed, records=report.records, repeated=report.repeated, errors=report.errors)
        return removed or report, after

    def _readable(self, report: TableReport | None, after: TableProgress) -> TableProgress:
        """Return the progress after the batch. A table that must wait stays unreadable, although its snapshot is complete."""
        since_ms, name = self._before.since_ms, self._table.full_name
        if since_ms is not None or after.since_ms is None:
            is_kept_back = False
        elif self._batch.state.reader != MAIN_READER:
            # A table that catches up becomes readable when it joins the reader `main`.
            is_kept_back = True
        else:
            is_kept_back = self._of.must_stay_unreadable(name, after, self._planned.transactions) or (
                report is None and not self._of.has_table(name)
            )
        return replace(after, since_ms=since_ms) if is_kept_back else after

    def _of_topic(self, offsets: Offsets) -> dict[int, int]:
        return {tp.partition: at for tp, at in offsets.items() if tp.topic == self._table.topic}


def _as_stop(table: Table, error: Exception) -> LakeholdError:
    if isinstance(error, LakeholdError):
        return error
    first_line = str(error).strip().split("\n", 1)[0]
    return LakeholdError(
        f'table "{table.full_name}" could not take its changes',
        code="table-failed",
        detail=described(error) if is_sparks(error) else f"{type(error).__name__}: {first_line}",
        hint=advice(error)
        or "The next ingest tries it again; the other tables continued. The whole error is in the log.",
    )
