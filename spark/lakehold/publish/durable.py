"""Durable clients: programs that process a SUBSCRIBE's output and, after a restart, continue where they stopped.

A client is *not started* until its first run, then *reading* its first snapshot, and *following* once it has acknowledged that
snapshot; its position is stored in each of these states. Rows are delivered again until they are acknowledged, and never after
that.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator, Iterator
from enum import StrEnum
from threading import Event

from lakehold.definitions import OnLapse
from lakehold.errors import DefinitionError, SubscriberLapsed
from lakehold.publish.deliveries import Delivery, DeliveryPosition, DeliveryRun
from lakehold.publish.follower import Follower
from lakehold.publish.input_hold import InputHold
from lakehold.settings import Settings
from lakehold.state.lease import leased
from lakehold.state.subscribers import Subscriber, SubscriberKind, SubscriberStore
from lakehold.subscribe.limited_read import Deadline, up_to_rows
from lakehold.subscribe.output_batches import Row
from lakehold.subscribe.subscription_opening import Opened

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class ClientState(StrEnum):
    """State of a durable client."""

    NOT_STARTED = "not-started"
    READING_SNAPSHOT = "reading-snapshot"
    FOLLOWING = "following"


class DurableClient:
    """One durable client, run by one process at a time.

    Args:
        name: The client's name.
        follower: Reads the SUBSCRIBE.
        input_hold: The client's hold.
        store: Stores the client's position, and the lease of the process that runs it.
        settings: Says how long a lease lasts.
        on_lapse: What to do if the hold was moved past the acknowledged position.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        name: str,
        follower: Follower,
        input_hold: InputHold,
        store: SubscriberStore,
        settings: Settings,
        on_lapse: OnLapse,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise DefinitionError(
                f'"{name}" is not a valid name for a durable client',
                code="client-name",
                hint="Use letters, digits, _ and -, beginning with a letter.",
            )
        self.name = name
        self._text = follower.statement.text
        self._follower = follower
        self._input_hold = input_hold
        self._store = store
        self._settings = settings
        self._on_lapse = on_lapse

    @property
    def position(self) -> int | None:
        """Return the position below which (exclusive, epoch milliseconds) all is acknowledged; None before the first snapshot."""
        subscriber = self._store.find(self.name)
        return subscriber.position_ms if subscriber is not None else None

    @property
    def state(self) -> ClientState:
        """Return the client's state, as stored in the lake."""
        if self._store.find(self.name) is None:
            return ClientState.NOT_STARTED
        return ClientState.READING_SNAPSHOT if self.position is None else ClientState.FOLLOWING

    def run(
        self,
        on_snapshot: Callable[[Iterator[Row]], None],
        on_update: Callable[[int, Iterator[Row]], None],
        stop: Event | None = None,
        *,
        max_rows: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Call back with all changes until now; with `stop` follow the lake until it is set.

        A callback that returns acknowledges its rows.

        Args:
            on_snapshot: Takes all rows of a snapshot: once at the beginning, and again after a lapse.
            on_update: Takes a timestamp and its rows.
            stop: Ends the run when set; checked between two timestamps.
            max_rows: The run ends after the timestamp with which it has so many rows.
            timeout: Seconds for which to wait for more changes.

        Raises:
            SubscriberBusy: Another process runs the client.
            SubscriberLapsed: Its hold was moved past its position.
            DefinitionError: The client exists with another statement, or its tables cannot be read.
        """
        for delivery in self.deliveries(stop, max_rows=max_rows, timeout=timeout):
            if delivery.is_snapshot:
                on_snapshot(iter(delivery))
            else:
                on_update(delivery.timestamp, iter(delivery))
            delivery.acknowledge()

    def deliveries(
        self, stop: Event | None = None, *, max_rows: int | None = None, timeout: float | None = None
    ) -> Generator[Delivery, None, None]:
        """Yield deliveries, which the client acknowledges itself; `run` does that for callbacks. Raises as `run` does.

        Acknowledging a delivery acknowledges all before it.
        """
        self._register()
        with leased(self._store, self.name, self._settings) as lease:
            subscriber = self._register()
            opened, is_snapshot = self._opened(subscriber)
            position = DeliveryPosition(self._store, lease, self.name, self._input_hold)
            ends = stop if timeout is None else Deadline(stop or Event(), timeout)
            output = up_to_rows(self._follower.output(opened, ends), max_rows)
            yield from DeliveryRun(position, subscriber.position_ms).of(output, stop, is_snapshot=is_snapshot)

    def forget(self) -> None:
        """Drop the client's hold and forget its position; its next run starts over.

        Killed in between, it has released the history, and the client is where it was: call it again.
        """
        self._input_hold.drop()
        self._store.forget(self.name)

    def _register(self) -> Subscriber:
        found = self._store.register(Subscriber(self.name, SubscriberKind.CLIENT, self.name, self._text))
        if found.statement != self._text:
            raise DefinitionError(
                f'durable client "{self.name}" already exists with another statement',
                code="client-statement",
                detail=f"It follows: {found.statement}",
                hint="Use another name, or discard the client's position with forget() and start over.",
            )
        return found

    def _opened(self, subscriber: Subscriber) -> tuple[Opened, bool]:
        """Open the client's SUBSCRIBE at its position; also return whether a snapshot comes first."""
        statement = self._follower.statement
        try:
            if subscriber.position_ms is not None:
                self._input_hold.resume(subscriber.position_ms)
                self._input_hold.advance(subscriber.position_ms, at_once=True)
                return self._follower.from_position(subscriber.position_ms), False
            start_ms = self._input_hold.start(statement.as_of.exact_ms, self._follower.start_ms)
            return self._follower.from_snapshot(start_ms), statement.snapshot
        except SubscriberLapsed:
            if self._on_lapse is OnLapse.STOP:
                raise
            logger.warning("durable client %s starts over from a snapshot", self.name)
            latest_ms = self._follower.latest_ms()
            self._input_hold.restart(latest_ms)
            return self._follower.from_new_snapshot(latest_ms), True
