"""Refreshes a materialized view: each timestamp of its query's output becomes one snapshot of its table, exactly once."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from itertools import groupby
from threading import Event

import pyarrow as pa

from lakehold.definitions import MaterializedView
from lakehold.errors import CommitConflict
from lakehold.failpoints import failpoint
from lakehold.model.lake_definitions import Entry
from lakehold.publish.derived_table import Published
from lakehold.publish.follower import Complete
from lakehold.publish.publisher import QUIET_S, Publisher, PublishReport
from lakehold.publish.view_table import ViewTable
from lakehold.state.lease import HeldLease
from lakehold.subscribe.output_batches import OutputChunk
from lakehold.subscribe.subscription_opening import Opened

logger = logging.getLogger(__name__)

_ATTEMPTS = 5
"""Attempts at one timestamp while other writers, such as maintenance, commit to the table."""


class ViewPublisher(Publisher):
    """A publisher that merges the output of a view's query into the view's table.

    Args:
        entry: The view.
        follower: Reads the changes of its query.
        output: Its table.
        input_hold: Its hold.
        store: Stores its position, and the lease of the process that refreshes it.
        settings: Says how long a lease lasts.
    """

    _entry: Entry[MaterializedView]
    _output: ViewTable

    def _commits(self, stop: Event | None, lease: HeldLease) -> Iterator[PublishReport]:
        attempt = 1
        while True:
            opened, epoch = self._open()
            try:
                for report in self._refreshes(opened, stop, lease, epoch):
                    attempt = 1
                    yield report
            except _ColumnsChanged:
                continue  # Opening again compares the columns with the table's.
            except CommitConflict as conflict:
                lease.confirm()
                if attempt == _ATTEMPTS:
                    raise
                logger.info("%s was changed while it was refreshed, retrying: %s", self._output.full_name, conflict)
                attempt += 1
            else:
                return

    def _refreshes(self, opened: Opened, stop: Event | None, lease: HeldLease, epoch: int) -> Iterator[PublishReport]:
        self._output.prepare(opened.subscription.relation.columns)
        quiet_s, is_moved = time.monotonic(), False
        for timestamp_ms, outputs in groupby(self._follower.output(opened, stop), key=_timestamp):
            if timestamp_ms is not None:
                chunks = (each.rows for each in outputs if isinstance(each, OutputChunk))
                yield self._refresh(timestamp_ms, _Counted(chunks, opened.subscription.output.schema), lease, epoch)
                is_moved = True
                continue
            for complete in outputs:
                assert isinstance(complete, Complete)
                ends = stop is None or stop.is_set()
                # The view is readable up to its position: after a refresh, as far as its tables are.
                if ends or is_moved or time.monotonic() - quiet_s >= QUIET_S:
                    self._store_idle_position(complete, lease)
                    quiet_s, is_moved = time.monotonic(), False
                if ends:
                    self._input_hold.advance(complete.until_ms, at_once=True)

    def _refresh(self, timestamp_ms: int, counted: _Counted, lease: HeldLease, epoch: int) -> PublishReport:
        becomes = Published(timestamp_ms + 1, epoch, lease.holder)
        lease.confirm()
        failpoint("before-publication")
        snapshot_id = self._output.refresh(timestamp_ms, counted, self._published, becomes, lease.confirm)
        failpoint("after-publication")
        self._published = becomes
        self._input_hold.advance(becomes.position_ms)
        return PublishReport(
            subscription=self._entry.definition.full_name,
            table=self._output.full_name,
            timestamps=1,
            rows=counted.rows,
            position_ms=becomes.position_ms,
            snapshot_id=snapshot_id,
        )


class _ColumnsChanged(Exception):
    """The query's result has other columns from a timestamp onward."""


class _Counted:
    """Chunks that are counted as they are read.

    Args:
        chunks: The chunks.
        columns: The columns that they have, unless a table that the query reads has changed.
    """

    def __init__(self, chunks: Iterable[pa.Table], columns: pa.Schema) -> None:
        self._chunks = chunks
        self._columns = columns
        self.rows = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for chunk in self._chunks:
            if (chunk.schema.names, chunk.schema.types) != (self._columns.names, self._columns.types):
                raise _ColumnsChanged
            self.rows += chunk.num_rows
            yield chunk


def _timestamp(each: OutputChunk | Complete) -> int | None:
    return each.mz_timestamp if isinstance(each, OutputChunk) else None
