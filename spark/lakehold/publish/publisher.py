"""Publishes subscriptions and views: the output of a SUBSCRIBE is committed to a table, each timestamp exactly once.

`lakehold publish`, `lake.publish` and the subscriptions DAG run it.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event

import pyarrow as pa

from lakehold.definitions import OnLapse, Subscription, described, name_of
from lakehold.errors import LakeholdError, SubscriberLapsed, SubscriberMissing
from lakehold.failpoints import failpoint
from lakehold.model.lake_definitions import DerivedEntry, Entry
from lakehold.publish.beginning import Beginning
from lakehold.publish.derived_table import DerivedTable, OutputOfSubscription, Published
from lakehold.publish.follower import FollowedTogether, Follower
from lakehold.publish.input_hold import InputHold
from lakehold.publish.known_columns import KnownColumns
from lakehold.publish.metrics import COMMITS, FAILURES, ROWS
from lakehold.publish.output_files import OutputFiles
from lakehold.publish.output_table import OutputTable, Publication
from lakehold.settings import Settings
from lakehold.spark_errors import readable
from lakehold.state.lease import HeldLease, leased
from lakehold.state.subscribers import Subscriber, SubscriberKind, SubscriberStore, position_of
from lakehold.subscribe.output_batches import Complete, OutputChunk
from lakehold.subscribe.subscription_opening import Opened
from lakehold.timeline.reader_lag import reached_ms
from lakehold.times import now_ms

logger = logging.getLogger(__name__)

COMMIT_ROWS = 200_000
"""Rows after which a commit ends, at the end of a timestamp. Fewer are committed if no more are available."""

QUIET_S = 10.0
"""How often a follower with nothing to publish stores its position."""

REMOVE_OLD_S = 600.0
"""How often a follower removes rows older than RETAIN OUTPUT."""


@dataclass(frozen=True)
class PublishReport:
    """The result of one commit to an output table or a view.

    Attributes:
        subscription: Name of the subscription, or full name of the view.
        table: Full name of the table.
        timestamps: Number of timestamps with rows in the commit.
        rows: Number of rows in the commit.
        position_ms: All output below it (exclusive) is published.
        snapshot_id: The new snapshot of the table.
        restarted: Whether the commit replaced all earlier rows.
    """

    subscription: str
    table: str
    timestamps: int
    rows: int
    position_ms: int
    snapshot_id: int
    restarted: bool = False


class _Waiting:
    """Output that is not committed yet."""

    def __init__(self, files: OutputFiles) -> None:
        self.files = files
        self.timestamps = self.rows = 0
        self.last_ms = 0

    def add(self, chunk: OutputChunk) -> None:
        if chunk.rows.num_rows:
            self.timestamps += chunk.mz_timestamp != self.last_ms
            self.rows += chunk.rows.num_rows
            self.last_ms = chunk.mz_timestamp
            self.files.add(chunk)

    def ends_before(self, chunk: OutputChunk) -> bool:
        """Return whether enough rows wait, and `chunk` begins a new timestamp."""
        return self.rows >= COMMIT_ROWS and chunk.mz_timestamp > self.last_ms


class Publisher(ABC):
    """A publisher of one subscription or materialized view: commits the output of its SUBSCRIBE to its table.

    Args:
        entry: The subscription or view.
        follower: Reads its SUBSCRIBE.
        output: Its table.
        input_hold: Its hold.
        store: Stores its position, and the lease of the process that publishes it.
        settings: Says how long a lease lasts.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        entry: DerivedEntry,
        follower: Follower,
        output: DerivedTable,
        input_hold: InputHold,
        store: SubscriberStore,
        settings: Settings,
    ) -> None:
        self._entry = entry
        self._known = KnownColumns(self._columns_moved, input_hold.table_replaced)
        self._follower = replace(follower, check=self._known.check)
        self._output = output
        self._input_hold = input_hold
        self._store = store
        self._settings = settings
        self._published: Published | None = None
        self._restarts_at_ms: int | None = None
        self._read_below_ms = 0
        self._is_stopped = False

    def publish(self, stop: Event | None = None) -> Iterator[PublishReport]:
        """Publish what can be read now; with `stop` follow the lake and publish changes until it is set.

        Raises:
            SubscriberBusy: Another process publishes it.
            SubscriberLapsed: The history after what is published is no longer kept, or columns that it has read are gone, and it
                does not start over by itself.
            LeaseLost: Another process took over; what this one has published remains.
            DefinitionError: Its tables cannot be read, or its table cannot be written.
            LakeholdError: Spark fails.
        """
        # A lease needs the subscriber's row. Under the lease the row is read again: its position and epoch are final then.
        self._store.register(subscriber_of(self._entry))
        try:
            with readable(), leased(self._store, self._entry.object_id, self._settings) as lease:
                while True:
                    try:
                        yield from self._commits(stop, lease)
                    except SubscriberLapsed:
                        # Its columns have changed while it followed: opening again starts over.
                        if not self._starts_over:
                            raise
                    else:
                        return
        except LakeholdError as error:
            FAILURES.labels(name_of(self._entry.definition), error.code).inc()
            raise

    @abstractmethod
    def _commits(self, stop: Event | None, lease: HeldLease) -> Iterator[PublishReport]:
        """Publish under the lease."""

    def _report(
        self, timestamps: int, rows: int, position_ms: int, snapshot_id: int, *, restarted: bool
    ) -> PublishReport:
        """Count a commit, and return its report."""
        name = name_of(self._entry.definition)
        COMMITS.labels(name).inc()
        ROWS.labels(name).inc(rows)
        return PublishReport(name, self._output.full_name, timestamps, rows, position_ms, snapshot_id, restarted)

    @property
    def _starts_over(self) -> bool:
        """Return whether a lapse is answered with a new snapshot."""
        return self._entry.definition.on_lapse is OnLapse.RESNAPSHOT

    def _columns_moved(self, changed: str) -> LakeholdError:
        """Return the error of columns that are not those which are published."""
        return self._input_hold.columns_moved(changed)

    def _open(self, follower: Follower) -> tuple[Opened, int]:
        """Open the SUBSCRIBE where the table ends; also return the epoch of this process.

        After a lapse, the next commit puts a new snapshot in place of all earlier rows.

        Raises:
            SubscriberLapsed: As `Beginning.at`.
            SubscriberMissing: It was dropped.
        """
        subscriber = self._store.get(self._entry.object_id)
        self._is_stopped = subscriber.error is not None
        self._published = self._output.published()
        position_ms = position_of(subscriber, self._published.position_ms if self._published is not None else None)
        beginning = Beginning(described(self._entry.definition), self._input_hold, self._known, self._starts_over)
        start = beginning.at(position_ms, self._output.columns_read, FollowedTogether((follower,)))
        self._restarts_at_ms = start.restarts_at_ms
        self._read_below_ms = position_ms or 0
        (opened,) = start.opened
        return opened, subscriber.epoch

    @contextmanager
    def _creating(self, lease: HeldLease) -> Iterator[None]:
        """Prepare the table in the block; if that creates it, confirm the lease in the lake before and after.

        A DROP may drop both, and the table must not exist again. The DROP removes the subscriber first: a publisher that creates
        the table after the DROP has looked for it finds no subscriber, and drops the table itself.

        Raises:
            LeaseLost: Another process took over.
            SubscriberMissing: The subscription or view was dropped.
        """
        is_new = self._output.table() is None
        if is_new:
            lease.confirm_in_lake()
        yield
        if is_new:
            try:
                lease.confirm_in_lake()
            except SubscriberMissing:
                self._output.drop()
                raise

    def _store_idle_position(self, complete: Complete, lease: HeldLease) -> None:
        """Store the position while there is nothing to publish, and advance the hold to it.

        The table records the position of its last commit itself.
        """
        self._read_below_ms = complete.until_ms
        output_ms = self._published.position_ms if self._published is not None else None
        if complete.until_ms != output_ms or self._is_stopped:
            self._store.move(self._entry.object_id, lease.holder, complete.until_ms, output_ms)
            self._is_stopped = False
        self._input_hold.advance(complete.until_ms)

    def _remove_old_rows(self, lease: HeldLease) -> None:
        """Remove rows older than RETAIN OUTPUT from the output; a view has no such option.

        Their age counts to the position: rows stay while nothing comes, and on a machine whose clock is ahead.
        """
        match self._entry.definition, self._output:
            case Subscription(retain_output_ms=int(retain_ms)), OutputOfSubscription() as output:
                read_below_ms = max(self._read_below_ms, self._published.position_ms if self._published else 0)
                if not output.remove_rows_before(reached_ms(read_below_ms, now_ms()) - retain_ms, lease.confirm):
                    logger.info(
                        "%s changed while old rows were being removed; they are removed later", output.full_name
                    )


class SubscriptionPublisher(Publisher):
    """A publisher that appends the output of a subscription to its output table.

    Args:
        entry: The subscription.
        follower: Reads its SUBSCRIBE.
        output: Its output table.
        input_hold: Its hold.
        store: Stores its position, and the lease of the process that publishes it.
        settings: Says how long a lease lasts.
    """

    _entry: Entry[Subscription]
    _output: OutputTable

    def _commits(self, stop: Event | None, lease: HeldLease) -> Iterator[PublishReport]:
        opened, epoch = self._open(self._follower)
        self._remove_old_rows(lease)
        yield from self._appends(opened, stop, lease, epoch)

    def _appends(self, opened: Opened, stop: Event | None, lease: HeldLease, epoch: int) -> Iterator[PublishReport]:
        waiting: _Waiting | None = None
        quiet_s = removed_s = time.monotonic()
        try:
            for each in self._follower.output(opened, stop):
                if isinstance(each, OutputChunk):
                    if waiting is not None and waiting.ends_before(each):
                        full, waiting = waiting, None
                        yield self._commit(full, full.last_ms + 1, lease, epoch)
                    waiting = waiting or self._prepared(each.rows.schema, lease)
                    waiting.add(each)
                    continue
                ends = stop is None or stop.is_set()
                # The first commit, and that of a restart, are made without rows, too: they record the position.
                if waiting is None and (self._published is None or self._restarts_at_ms is not None):
                    waiting = self._prepared(opened.subscription.output.schema, lease)
                if waiting is not None:
                    full, waiting = waiting, None
                    yield self._commit(full, each.until_ms, lease, epoch)
                elif ends or time.monotonic() - quiet_s >= QUIET_S:
                    self._store_idle_position(each, lease)
                    quiet_s = time.monotonic()
                if ends:
                    self._input_hold.advance(each.until_ms, at_once=True)
                elif time.monotonic() - removed_s >= REMOVE_OLD_S:
                    self._remove_old_rows(lease)
                    removed_s = time.monotonic()
        finally:
            if waiting is not None:
                waiting.files.delete()

    def _prepared(self, columns: pa.Schema, lease: HeldLease) -> _Waiting:
        """Prepare the output table for rows with `columns`, and begin to collect them."""
        with self._creating(lease):
            table = self._output.prepare(columns)
        return _Waiting(OutputFiles(table))

    def _commit(self, waiting: _Waiting, position_ms: int, lease: HeldLease, epoch: int) -> PublishReport:
        files = waiting.files.files()
        publication = Publication(files, self._published, position_ms, self._known.columns, self._restarts_at_ms)
        failpoint("before-publication")
        lease.confirm()
        snapshot_id = self._output.publish(publication, epoch, lease.holder)
        failpoint("after-publication")
        self._published, self._restarts_at_ms = Published(position_ms, epoch, lease.holder), None
        self._input_hold.advance(position_ms)
        is_restart = publication.restarted_at_ms is not None
        return self._report(waiting.timestamps, waiting.rows, position_ms, snapshot_id, restarted=is_restart)


def subscriber_of(entry: DerivedEntry) -> Subscriber:
    """Return the subscriber of a subscription or view before anything is published."""
    definition = entry.definition
    kind = SubscriberKind.SUBSCRIPTION if isinstance(definition, Subscription) else SubscriberKind.VIEW
    return Subscriber(entry.object_id, kind, name_of(definition), definition.subscribe)
