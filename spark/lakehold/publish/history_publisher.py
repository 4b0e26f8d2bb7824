"""Publishes the history of a subscription: merges changes into its table, several timestamps in one commit, exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pyarrow as pa

from lakehold.definitions import Subscription
from lakehold.errors import CommitConflict
from lakehold.failpoints import failpoint
from lakehold.model.lake_definitions import Entry
from lakehold.publish.commit_parts import Part, parts
from lakehold.publish.counted_chunks import ColumnsChanged, Counted
from lakehold.publish.derived_table import Published
from lakehold.publish.history_table import HistoryTable, Merge
from lakehold.publish.merging_publisher import MergingPublisher
from lakehold.publish.publisher import COMMIT_ROWS, PublishReport
from lakehold.state.lease import HeldLease
from lakehold.subscribe.subscription_opening import Opened


class HistoryPublisher(MergingPublisher):
    """A publisher that merges the changes of a subscription with ENVELOPE HISTORY into its table.

    Args:
        entry: The subscription.
        follower: Reads its SUBSCRIBE.
        output: Its table.
        input_hold: Its hold.
        store: Stores its position, and the lease of the process that publishes it.
        settings: Says how long a lease lasts.
    """

    _entry: Entry[Subscription]
    _output: HistoryTable

    def _commits(self, stop: Event | None, lease: HeldLease) -> Iterator[PublishReport]:
        self._attempt = 1
        while True:
            opened, epoch = self._open(self._follower)
            try:
                yield from self._merges(opened, stop, lease, epoch)
            except ColumnsChanged:
                continue  # Opening again compares the columns with the table's.
            except CommitConflict as conflict:
                self._retry(conflict, lease)
            else:
                return

    def _merges(self, opened: Opened, stop: Event | None, lease: HeldLease, epoch: int) -> Iterator[PublishReport]:
        with self._creating(lease):
            self._output.prepare(opened.subscription.relation.columns, lease.confirm)
        self._remove_old_rows(lease)
        self._begin()
        columns = opened.subscription.output.schema
        for each in parts(self._follower.output(opened, stop), COMMIT_ROWS):
            if isinstance(each, Part):
                yield self._merge(each, columns, lease, epoch)
                continue
            if self._published is None or self._restarts_at_ms is not None:
                # The first commit, and that of a restart, are made without rows, too: they record the position.
                yield self._merge(Part(each.until_ms - 1, 0, iter(())), columns, lease, epoch)
            self._complete(each, stop, lease)

    def _merge(self, part: Part, columns: pa.Schema, lease: HeldLease, epoch: int) -> PublishReport:
        becomes = Published(part.last_ms + 1, epoch, lease.holder)
        counted = Counted(part.chunks, columns)
        merge = Merge(part.last_ms, counted, self._published, becomes, self._known.columns, self._restarts_at_ms)
        lease.confirm()
        failpoint("before-publication")
        snapshot_id = self._output.merge(merge, lease.confirm)
        failpoint("after-publication")
        self._committed()
        self._published, self._restarts_at_ms = becomes, None
        self._input_hold.advance(becomes.position_ms)
        is_restart = merge.restarted_at_ms is not None
        return self._report(part.timestamps, counted.rows, becomes.position_ms, snapshot_id, restarted=is_restart)
