"""Deliveries to a durable client: one per timestamp, each acknowledged by the client.

A durable client is a program that follows a SUBSCRIBE, and continues after a restart where it stopped (`durable.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, groupby
from threading import Event

import pyarrow as pa

from lakehold.failpoints import failpoint
from lakehold.publish.input_hold import InputHold
from lakehold.state.lease import HeldLease
from lakehold.state.subscribers import SubscriberStore
from lakehold.subscribe.output_batches import Complete, OutputChunk, Row
from lakehold.subscribe.row_values import tuples

QUIET_S = 10.0
"""How often a client that follows the lake without new rows stores its position."""


class Delivery:
    """The complete rows of one timestamp, to be acknowledged once the client has processed them.

    Attributes:
        timestamp: Epoch milliseconds.
        columns: Names of the columns.
        is_snapshot: Whether these are all rows at `timestamp`, not the changes of that timestamp.
    """

    def __init__(
        self, first: OutputChunk, rest: Iterator[OutputChunk], acknowledge: Callable[[], None], *, is_snapshot: bool
    ) -> None:
        self.timestamp = first.mz_timestamp
        self.columns = tuple(first.rows.column_names)
        self.is_snapshot = is_snapshot
        self._chunks = chain([first], rest)
        self._acknowledge = acknowledge

    def __iter__(self) -> Iterator[Row]:
        """Iterate over the rows, once, without keeping them: a snapshot may have any size."""
        for table in self.tables():
            yield from tuples(table)

    def tables(self) -> Iterator[pa.Table]:
        """Iterate over the rows as Arrow tables, once."""
        return (chunk.rows for chunk in self._chunks)

    def acknowledge(self) -> None:
        """Mark this timestamp and all before it as processed: they will not be delivered again."""
        self._acknowledge()


class DeliveryPosition:
    """The stored position of a client that this process runs.

    Args:
        store: Stores the position.
        lease: The lease of this process.
        name: The client's name.
        input_hold: The client's hold.
    """

    def __init__(self, store: SubscriberStore, lease: HeldLease, name: str, input_hold: InputHold) -> None:
        self._store = store
        self._lease = lease
        self._name = name
        self._input_hold = input_hold

    def confirm(self) -> None:
        """Raise `LeaseLost` if another process runs the client."""
        self._lease.confirm()

    def store(self, position_ms: int) -> None:
        """Store that all below `position_ms` (exclusive) is acknowledged, then let the hold follow."""
        self._store.move(self._name, self._lease.holder, position_ms)
        failpoint("after-acknowledgement")
        self._input_hold.advance(position_ms)

    def advance_hold(self, position_ms: int) -> None:
        """Move the hold to the client's position at once."""
        self._input_hold.advance(position_ms, at_once=True)


class DeliveryRun:
    """One run of a client: tracks what was delivered and what is acknowledged.

    Args:
        position: Stores the client's position.
        position_ms: All below it (exclusive) was acknowledged before this run; None before the first snapshot.
    """

    def __init__(self, position: DeliveryPosition, position_ms: int | None) -> None:
        self._position = position
        self._position_ms = position_ms
        self._delivered_ms: int | None = None
        self._quiet_s = time.monotonic()

    def of(
        self, output: Iterator[OutputChunk | Complete], stop: Event | None, *, is_snapshot: bool
    ) -> Iterator[Delivery]:
        """Yield the deliveries in `output`, until `stop` is set if there is one.

        Args:
            output: The output of the client's SUBSCRIBE.
            stop: Ends the run when set; None if `output` ends by itself.
            is_snapshot: Whether the first timestamp is a snapshot.
        """
        for timestamp, outputs in groupby(output, key=_timestamp):
            if timestamp is None:
                for each in outputs:
                    self._complete(each, ends=stop is None)
                continue
            self._position.confirm()
            self._delivered_ms = timestamp
            yield _delivery(outputs, partial(self._acknowledge, timestamp + 1), is_snapshot=is_snapshot)
            is_snapshot = False
            if stop is not None and stop.is_set():
                break
        if self._position_ms is not None:
            self._position.advance_hold(self._position_ms)

    def _acknowledge(self, position_ms: int) -> None:
        if self._position_ms is None or position_ms > self._position_ms:
            self._position.store(position_ms)
            self._position_ms = position_ms

    def _complete(self, each: OutputChunk | Complete, *, ends: bool) -> None:
        """Record that no rows come below a time.

        This is only recorded once everything delivered is acknowledged; while following, at most once in `QUIET_S` seconds.
        """
        delivered_ms, position_ms = self._delivered_ms, self._position_ms
        is_open = delivered_ms is not None and (position_ms is None or position_ms <= delivered_ms)
        if isinstance(each, OutputChunk) or is_open or not (ends or time.monotonic() - self._quiet_s >= QUIET_S):
            return
        self._acknowledge(each.until_ms)
        self._quiet_s = time.monotonic()


def _timestamp(each: OutputChunk | Complete) -> int | None:
    return each.mz_timestamp if isinstance(each, OutputChunk) else None


def _delivery(
    outputs: Iterator[OutputChunk | Complete], acknowledge: Callable[[], None], *, is_snapshot: bool
) -> Delivery:
    chunks = (each for each in outputs if isinstance(each, OutputChunk))
    first = next(chunks)
    return Delivery(first, chunks, acknowledge, is_snapshot=is_snapshot)
