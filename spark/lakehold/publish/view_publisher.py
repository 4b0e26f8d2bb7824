"""Refreshes a materialized view: each timestamp of its query's output becomes one snapshot of its table, exactly once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from threading import Event

from pyspark.errors import AnalysisException

from lakehold.definitions import MaterializedView
from lakehold.errors import CommitConflict, DefinitionError, LakeholdError
from lakehold.failpoints import failpoint
from lakehold.model.lake_definitions import Entry
from lakehold.model.readers import ReaderError
from lakehold.publish.counted_chunks import ColumnsChanged, Counted
from lakehold.publish.derived_table import Published
from lakehold.publish.follower import Follower
from lakehold.publish.merging_publisher import MergingPublisher
from lakehold.publish.publisher import PublishReport
from lakehold.publish.view_changes import KeyViolated
from lakehold.publish.view_columns import other_columns
from lakehold.publish.view_table import ViewTable
from lakehold.spark_errors import described, is_of_values, readable
from lakehold.state.lease import HeldLease
from lakehold.subscribe.output_batches import Complete, OutputChunk
from lakehold.subscribe.query_columns import QueryColumns
from lakehold.subscribe.subscription_opening import Opened

logger = logging.getLogger(__name__)

_NOT_OF_COLUMNS = frozenset(
    {
        "FAILED_TO_LOAD_ROUTINE",
        "ROUTINE_NOT_FOUND",
        "TABLE_OR_VIEW_NOT_FOUND",
        "UNRESOLVED_ROUTINE",
        "UNRESOLVED_VARIABLE",
    }
)
"""Conditions of Spark's errors with which a query cannot be opened although its tables have the columns that it names."""


class ViewPublisher(MergingPublisher):
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
        """Refresh, and record the error that stops the view, if one does."""
        found = self._store.find(self._entry.object_id)
        is_stopped = found is not None and found.error is not None
        try:
            with readable():
                for report in self._merges(stop, lease):
                    if is_stopped:
                        self._store.stop(self._entry.object_id, lease.holder, None)
                        is_stopped = False
                    yield report
        except LakeholdError as error:
            if isinstance(error, KeyViolated) or not error.retryable:
                with suppress(LakeholdError):
                    kept = ReaderError.of(error)
                    self._store.stop(self._entry.object_id, lease.holder, kept)
            raise

    def _merges(self, stop: Event | None, lease: HeldLease) -> Iterator[PublishReport]:
        self._attempt, follower = 1, self._follower
        is_done = False
        while not is_done:
            is_done = True
            try:
                opened, epoch = self._opened(follower, lease)
                for report in self._refreshes(follower, opened, stop, lease, epoch):
                    yield report
                    if follower is not self._follower:
                        follower, is_done = self._follower, False
                        break
            except ColumnsChanged:
                is_done = False  # Opening again compares the columns with the table's.
            except CommitConflict as conflict:
                self._retry(conflict, lease)
                is_done = False
            except (AnalysisException, DefinitionError) as error:
                # While it follows, a query is opened again whenever columns of its tables change.
                raise self._of_columns(error) from None
            except Exception as error:
                if follower.is_net or not (isinstance(error, KeyViolated) or is_of_values(error)):
                    raise
                # The rows that are at fault may be gone by now: then all timestamps up to now are merged as one.
                logger.info(
                    "%s: %s", self._output.full_name, error if isinstance(error, KeyViolated) else described(error)
                )
                follower, is_done = replace(follower, is_net=True), False

    def _opened(self, follower: Follower, lease: HeldLease) -> tuple[Opened, int]:
        """Open the SUBSCRIBE, and give the table its columns.

        Raises:
            DefinitionError: Its tables have other columns than the query names, or than the view's table can follow.
        """
        opened, epoch = self._open(follower)
        fields = (field for timeline in opened.timelines.values() for field in timeline.table.schema().fields)
        filled = {field.name for field in fields if field.initial_default is not None}
        read = opened.read_columns if self._restarts_at_ms is None else None
        with self._creating(lease):
            self._output.prepare(opened.subscription.relation.columns, read, lease.confirm, filled)
        return opened, epoch

    def _of_columns(self, error: AnalysisException | DefinitionError) -> Exception:
        """Return the error of columns that the query names and its tables lack, or `error` if it is another one."""
        full_name = self._output.full_name
        if isinstance(error, DefinitionError):
            is_of_key = error.code in ("column-missing", "column-ambiguous")
            return other_columns(full_name, f"In its KEY, {error.message}. {error.detail}") if is_of_key else error
        is_other = (error.getCondition() or "").partition(".")[0] in _NOT_OF_COLUMNS
        return error if is_other else other_columns(full_name, described(error))

    def _columns_moved(self, changed: str) -> LakeholdError:
        return other_columns(self._output.full_name, changed)

    def _refreshes(
        self, follower: Follower, opened: Opened, stop: Event | None, lease: HeldLease, epoch: int
    ) -> Iterator[PublishReport]:
        self._begin()
        read = opened.read_columns
        for timestamp_ms, outputs in groupby(follower.output(opened, stop), key=_timestamp):
            if timestamp_ms is not None:
                chunks = (each.rows for each in outputs if isinstance(each, OutputChunk))
                counted = Counted(chunks, opened.subscription.output.schema)
                yield self._refresh(timestamp_ms, counted, read, lease, epoch)
                continue
            for complete in outputs:
                assert isinstance(complete, Complete)
                self._complete(complete, stop, lease)

    def _refresh(
        self, timestamp_ms: int, counted: Counted, read: QueryColumns, lease: HeldLease, epoch: int
    ) -> PublishReport:
        becomes = Published(timestamp_ms + 1, epoch, lease.holder)
        is_restart = self._restarts_at_ms is not None
        lease.confirm()
        failpoint("before-publication")
        snapshot_id = self._output.refresh(
            timestamp_ms, counted, read, self._published, becomes, lease.confirm, replaces=is_restart
        )
        failpoint("after-publication")
        self._committed()
        self._published, self._restarts_at_ms = becomes, None
        self._input_hold.advance(becomes.position_ms)
        return self._report(1, counted.rows, becomes.position_ms, snapshot_id, restarted=is_restart)


def _timestamp(each: OutputChunk | Complete) -> int | None:
    return each.mz_timestamp if isinstance(each, OutputChunk) else None
