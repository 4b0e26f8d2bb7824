"""Deliveries to a durable client: one per timestamp, each acknowledged by the client.

A durable client is a program that follows one or more SUBSCRIBEs, and continues after a restart where it stopped (`durable.py`).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import Event, RLock

import pyarrow as pa

from lakehold.errors import DefinitionError, LeaseLost
from lakehold.failpoints import failpoint
from lakehold.publish.follower import FollowedWindow
from lakehold.publish.input_hold import InputHold
from lakehold.publish.known_columns import KnownColumns
from lakehold.settings import Settings
from lakehold.state.lease import HeldLease, leased
from lakehold.state.subscribers import Subscriber, SubscriberStore
from lakehold.subscribe.output_batches import OutputChunk, Row, StreamedTables, Unread, leave
from lakehold.subscribe.row_values import tuples

ONLY = ""
"""Name of a client's statement if it has one only."""

QUIET_S = 10.0
"""How often a client that follows the lake without new rows stores its position."""


class DeliveredRows:
    """The rows of one statement in a delivery.

    Attributes:
        columns: Names of the columns.
    """

    def __init__(self, columns: tuple[str, ...], tables: StreamedTables) -> None:
        self.columns = columns
        self._tables = tables

    def __iter__(self) -> Iterator[Row]:
        """Iterate over the rows, once: a snapshot may have any size.

        Rows that are read when the next delivery has begun are in memory, unless they were acknowledged: then this raises.

        Raises:
            DefinitionError: The rows were read before, or acknowledged unread.
        """
        for table in self.tables():
            yield from tuples(table)

    def tables(self) -> Iterator[pa.Table]:
        """Iterate over the rows as Arrow tables, once."""
        return iter(self._tables)


class Delivery:
    """The complete rows of one timestamp, to be acknowledged once the client has processed them.

    Iterate over it if the client has one statement; `by_statement` has the rows of each.

    Attributes:
        timestamp: Epoch milliseconds.
        by_statement: The rows of each statement by its name, also where there are none; the name of a single one is empty.
        is_snapshot: Whether these are all rows at `timestamp`, not the changes of that timestamp.
    """

    def __init__(
        self,
        timestamp: int,
        by_statement: Mapping[str, DeliveredRows],
        acknowledge: Callable[[], None],
        *,
        is_snapshot: bool,
    ) -> None:
        self.timestamp = timestamp
        self.by_statement = by_statement
        self.is_snapshot = is_snapshot
        self._acknowledge = acknowledge

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns of the client's only statement."""
        return self._rows.columns

    def __iter__(self) -> Iterator[Row]:
        """Iterate over the rows of the client's only statement, once: see `DeliveredRows`."""
        return iter(self._rows)

    def tables(self) -> Iterator[pa.Table]:
        """Iterate over the rows of the client's only statement as Arrow tables, once."""
        return self._rows.tables()

    def acknowledge(self) -> None:
        """Mark this timestamp and all before it as processed: they will not be delivered again.

        After the last delivery this also works when the run is over, until another run begins.

        Raises:
            SubscriberBusy: The run is over, and another process runs the client.
            LeaseLost: Another process took the client over, or ran it since.
        """
        self._acknowledge()

    @property
    def _rows(self) -> DeliveredRows:
        if ONLY not in self.by_statement:
            raise DefinitionError(
                "this delivery has the rows of several statements",
                code="delivery-statements",
                detail=f"Statements: {', '.join(self.by_statement)}.",
                hint="Read delivery.by_statement[name].",
            )
        return self.by_statement[ONLY]


class DeliveryPosition:
    """The stored position of a client that this process runs, or ran last.

    Attributes:
        lock: Locks the position; other threads may acknowledge deliveries.

    Args:
        store: Stores the position.
        lease: The lease of this process.
        client: The client, read under the lease.
        input_hold: The client's hold.
        known: The columns that it has read.
        settings: Says how long a lease lasts.
    """

    def __init__(  # noqa: PLR0913 - what it stores, and where
        self,
        store: SubscriberStore,
        lease: HeldLease,
        client: Subscriber,
        input_hold: InputHold,
        known: KnownColumns,
        settings: Settings,
    ) -> None:
        self._store = store
        self._lease = lease
        self._name = client.name
        self._epoch = client.epoch
        self._input_hold = input_hold
        self._known = known
        self._settings = settings
        self._is_over = False
        self.lock = RLock()

    def end(self) -> None:
        """Release the lease, as the run is over: what is acknowledged from now on takes it again."""
        # Other threads may acknowledge.
        with self.lock:
            self._is_over = True
            self._lease.release()

    def confirm(self) -> None:
        """Raise `LeaseLost` if another process runs the client."""
        self._lease.confirm()

    def store(self, position_ms: int) -> None:
        """Store that all below `position_ms` (exclusive) is acknowledged, then let the hold follow.

        Raises:
            SubscriberBusy: The run is over, and another process runs the client.
            LeaseLost: Another process took the client over, or ran it since.
        """
        if self._is_over:
            self._store_late(position_ms)
            return
        self._store.move(self._name, self._lease.holder, position_ms, columns=self._known.columns)
        failpoint("after-acknowledgement")
        self._input_hold.advance(position_ms)

    def _store_late(self, position_ms: int) -> None:
        with leased(self._store, self._name, self._settings) as lease:
            client = self._store.find(self._name)
            # Each process that takes the lease begins an epoch: any other one than the next belongs to a later run.
            if client is None or client.epoch != self._epoch + 1:
                raise LeaseLost(
                    f'durable client "{self._name}" was run again before this delivery was acknowledged',
                    detail="The later run had the delivery, too, and decides whether it comes again.",
                    hint="Acknowledge deliveries before another run of the client begins.",
                )
            self._epoch = client.epoch
            self._store.move(self._name, lease.holder, position_ms, columns=self._known.columns)
            self._input_hold.advance(position_ms, at_once=True)

    def advance_hold(self, position_ms: int) -> None:
        """Move the hold to the client's position at once."""
        self._input_hold.advance(position_ms, at_once=True)


class DeliveryRun:
    """One run of a client: tracks what was delivered and what is acknowledged.

    Args:
        position: Stores the client's position.
        position_ms: All below it (exclusive) was acknowledged before this run; None before a snapshot, the first or a new one.
    """

    def __init__(self, position: DeliveryPosition, position_ms: int | None) -> None:
        self._position = position
        self._position_ms = position_ms
        self._is_replaced = False
        self._delivered_ms: int | None = None
        self._complete_ms: int | None = None
        self._quiet_s = time.monotonic()

    def of(
        self,
        statements: Sequence[str],
        windows: Iterable[FollowedWindow],
        stop: Event | None,
        *,
        is_snapshot: bool,
        max_rows: int | None = None,
    ) -> Iterator[Delivery]:
        """Yield the deliveries in `windows`, until `stop` is set if there is one.

        Args:
            statements: The names of the client's statements.
            windows: The output of the statements, in the same order.
            stop: Ends the run when set, between two timestamps.
            is_snapshot: Whether the first timestamp is a snapshot.
            max_rows: The run ends after the timestamp with which it has so many rows; None: it has no such limit.
        """
        rows, is_over = 0, False
        for window in windows:
            outputs = [_Output(columns, chunks) for columns, chunks in zip(window.columns, window.outputs, strict=True)]
            while (timestamp := _next(outputs)) is not None and not is_over:
                self._position.confirm()
                self._delivered_ms = timestamp
                delivered = {name: each.of(timestamp) for name, each in zip(statements, outputs, strict=True)}
                yield Delivery(timestamp, delivered, partial(self._acknowledge, timestamp + 1), is_snapshot=is_snapshot)
                is_snapshot = False
                rows += sum(each.leave(is_acknowledged=self._is_acknowledged(timestamp)) for each in outputs)
                is_over = (stop is not None and stop.is_set()) or (max_rows is not None and rows >= max_rows)
            if timestamp is None:
                self._complete_ms = window.until_ms
                if time.monotonic() - self._quiet_s >= QUIET_S:
                    self._store_complete()
            if is_over:
                break
        self._store_complete()
        if self._position_ms is not None:
            self._position.advance_hold(self._position_ms)

    def replace(self) -> None:
        """Let another run begin with a new snapshot: it replaces deliveries that are acknowledged from now on."""
        with self._position.lock:
            self._is_replaced = True

    def _is_acknowledged(self, timestamp: int) -> bool:
        return self._position_ms is not None and timestamp < self._position_ms

    def _acknowledge(self, position_ms: int) -> None:
        with self._position.lock:
            if not self._is_replaced and not self._is_acknowledged(position_ms - 1):
                self._position.store(position_ms)
                self._position_ms = position_ms

    def _store_complete(self) -> None:
        """Store below which time all rows were delivered, once everything delivered is acknowledged."""
        is_open = self._delivered_ms is not None and not self._is_acknowledged(self._delivered_ms)
        if self._complete_ms is not None and not is_open:
            self._acknowledge(self._complete_ms)
            self._quiet_s = time.monotonic()


class _Output:
    """The output of one statement in a window, of which the next chunk is known."""

    def __init__(self, columns: tuple[str, ...], chunks: Iterator[OutputChunk]) -> None:
        self._columns = columns
        self._chunks = chunks
        self._rows = 0
        self.next = self._take()
        self._unread: Unread
        self._given: weakref.ref[StreamedTables]

    def of(self, timestamp: int) -> DeliveredRows:
        """Return the rows of a timestamp, which is that of the next chunk or an earlier one."""
        self._rows = 0
        self._unread = Unread(self._of(timestamp))
        tables = StreamedTables(self._unread)
        self._given = weakref.ref(tables)
        return DeliveredRows(self._columns, tables)

    def leave(self, *, is_acknowledged: bool) -> int:
        """Go on behind the timestamp that was delivered last; return how many rows it has in all."""
        leave(self._given, self._unread, keeps=not is_acknowledged)
        return self._rows

    def _of(self, timestamp: int) -> Iterator[pa.Table]:
        while self.next is not None and self.next.mz_timestamp == timestamp:
            yield self.next.rows
            self._rows += self.next.rows.num_rows
            self.next = self._take()

    def _take(self) -> OutputChunk | None:
        return next(self._chunks, None)


def _next(outputs: Sequence[_Output]) -> int | None:
    """Return the first timestamp of which an output has rows that were not delivered; None if none has."""
    return min((each.next.mz_timestamp for each in outputs if each.next is not None), default=None)
