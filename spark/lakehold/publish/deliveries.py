"""What a durable client is given, one timestamp at a time, and how it is acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, groupby
from threading import Event

import pyarrow as pa

from lakehold.failpoints import reach
from lakehold.publish.follower import Complete
from lakehold.publish.input_hold import InputHold
from lakehold.state.lease import HeldLease
from lakehold.state.subscribers import SubscriberStore
from lakehold.subscribe.batches import OutputChunk, Row
from lakehold.subscribe.row_values import tuples

QUIET_S = 10.0
"""How often it is kept, while following, that nothing came."""


class Delivery:
    """The rows of one timestamp, complete, to be acknowledged once they are dealt with.

    Attributes:
        timestamp: Epoch milliseconds.
        columns: The rows' columns.
        is_snapshot: Whether these are all rows at `timestamp` and not what changed then.
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
        """The rows, once, as they are read: a snapshot of any size passes through."""
        for table in self.tables():
            yield from tuples(table)

    def tables(self) -> Iterator[pa.Table]:
        """The same as Arrow tables."""
        return (chunk.rows for chunk in self._chunks)

    def acknowledge(self) -> None:
        """Never give this timestamp again, nor any before it."""
        self._acknowledge()


class DeliveryPosition:
    """Where a client's place is kept, while this process runs it.

    Args:
        store: Keeps it.
        lease: Of this process.
        name: Of the client.
        held_input: Its hold.
    """

    def __init__(self, store: SubscriberStore, lease: HeldLease, name: str, input_hold: InputHold) -> None:
        self._store = store
        self._lease = lease
        self._name = name
        self._input_hold = input_hold

    def confirm(self) -> None:
        """Raise `LeaseLost` when another process runs the client."""
        self._lease.confirm()

    def store(self, position_ms: int) -> None:
        """All below `position_ms` (exclusive) is acknowledged; then what is held for it can go."""
        self._store.move(self._name, self._lease.owner, position_ms)
        reach("after-acknowledgement")
        self._input_hold.taken(position_ms)

    def advance_hold(self, position_ms: int) -> None:
        """Move the hold to where the client is."""
        self._input_hold.taken(position_ms, at_once=True)


class DeliveryRun:
    """One run of a client: what is out, and how far it is acknowledged.

    Args:
        place: Where the client's place is kept.
        position_ms: Where it is; None: before the first snapshot.
    """

    def __init__(self, position: DeliveryPosition, position_ms: int | None) -> None:
        self._position = position
        self._position_ms = position_ms
        self._delivered_ms: int | None = None
        self._quiet_s = time.monotonic()

    def of(
        self, all_parts: Iterator[OutputChunk | Complete], stop: Event | None, *, is_snapshot: bool
    ) -> Iterator[Delivery]:
        """What is delivered of `all_parts`, until `stop` is set if there is one.

        Args:
            all_parts: What the client's SUBSCRIBE gives.
            stop: None: `all_parts` ends by itself.
            is_snapshot: Whether the first timestamp is one.
        """
        for timestamp, parts in groupby(all_parts, key=_timestamp):
            if timestamp is None:
                for part in parts:
                    self._complete(part, ends=stop is None)
                continue
            self._position.confirm()
            self._delivered_ms = timestamp
            yield _delivery(parts, partial(self._acknowledge, timestamp + 1), is_snapshot=is_snapshot)
            is_snapshot = False
            if stop is not None and stop.is_set():
                break
        if self._position_ms is not None:
            self._position.advance_hold(self._position_ms)

    def _acknowledge(self, position_ms: int) -> None:
        if self._position_ms is None or position_ms > self._position_ms:
            self._position.store(position_ms)
            self._position_ms = position_ms

    def _complete(self, part: OutputChunk | Complete, *, ends: bool) -> None:
        """Nothing more comes below a time: that is known for good once all that came is acknowledged."""
        delivered_ms, position_ms = self._delivered_ms, self._position_ms
        is_open = delivered_ms is not None and (position_ms is None or position_ms <= delivered_ms)
        if isinstance(part, OutputChunk) or is_open or not (ends or time.monotonic() - self._quiet_s >= QUIET_S):
            return
        self._acknowledge(part.until_ms)
        self._quiet_s = time.monotonic()


def _timestamp(part: OutputChunk | Complete) -> int | None:
    return part.mz_timestamp if isinstance(part, OutputChunk) else None


def _delivery(
    parts: Iterator[OutputChunk | Complete], acknowledge: Callable[[], None], *, is_snapshot: bool
) -> Delivery:
    chunks = (part for part in parts if isinstance(part, OutputChunk))
    first = next(chunks)
    return Delivery(first, chunks, acknowledge, is_snapshot=is_snapshot)
