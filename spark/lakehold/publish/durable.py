"""Durable clients: programs that take a SUBSCRIBE's output and go on where they were after a restart.

A client is *not started* until it first runs, then *reading* its first snapshot, and *following* once it has acknowledged it
(the state machine of the seed "Subscribe output", with a place to go on from in each state). What was not acknowledged comes
again; what was does not.
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
from lakehold.state.lease import held
from lakehold.state.subscribers import Subscriber, SubscriberKind, SubscriberStore
from lakehold.subscribe.batches import Row
from lakehold.subscribe.opening import Opened

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class ClientState(StrEnum):
    """How far a durable client is."""

    NOT_STARTED = "not-started"
    READING_SNAPSHOT = "reading-snapshot"
    FOLLOWING = "following"


class DurableClient:
    """One durable client, run by one process at a time.

    Args:
        name: Of the client.
        text: Its SUBSCRIBE as written.
        following: Reads it.
        held_input: Its hold.
        store: Keeps how far it is, and who runs it.
        settings: How long a lease is.
        on_lapse: What happens when its hold was moved past what it has acknowledged.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        name: str,
        text: str,
        follower: Follower,
        input_hold: InputHold,
        store: SubscriberStore,
        settings: Settings,
        on_lapse: OnLapse,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise DefinitionError(
                f'"{name}" is no name for a durable client',
                code="client-name",
                hint="Use letters, digits, _ and -, beginning with a letter.",
            )
        self.name = name
        self._text = text.strip()
        self._follower = follower
        self._input_hold = input_hold
        self._store = store
        self._settings = settings
        self._on_lapse = on_lapse

    @property
    def position(self) -> int | None:
        """All below it (exclusive, epoch milliseconds) is acknowledged; None before the first snapshot is."""
        subscriber = self._store.find(self.name)
        return subscriber.position_ms if subscriber is not None else None

    @property
    def state(self) -> ClientState:
        """How far it is, as it is kept in the lake."""
        if self._store.find(self.name) is None:
            return ClientState.NOT_STARTED
        return ClientState.READING_SNAPSHOT if self.position is None else ClientState.FOLLOWING

    def run(
        self,
        on_snapshot: Callable[[Iterator[Row]], None],
        on_update: Callable[[int, Iterator[Row]], None],
        stop: Event | None = None,
    ) -> None:
        """Call back with what has changed until now; with `stop` go on until it is set. What returns is acknowledged.

        Args:
            on_snapshot: Takes all rows of the first snapshot: once, and anew after a lapse.
            on_update: Takes a timestamp and its rows.
            stop: Ends it between two timestamps when set.

        Raises:
            SubscriberBusy: Another process runs the client.
            SubscriberLapsed: Its hold was moved past its position.
            DefinitionError: It has another statement, or its tables cannot be read.
        """
        for delivery in self.deliveries(stop):
            if delivery.is_snapshot:
                on_snapshot(iter(delivery))
            else:
                on_update(delivery.timestamp, iter(delivery))
            delivery.acknowledge()

    def deliveries(self, stop: Event | None = None) -> Generator[Delivery, None, None]:
        """What `run` calls back with, one at a time, for those who acknowledge themselves. Raises as it does.

        Acknowledging one acknowledges those before it.
        """
        self._register()
        with held(self._store, self.name, self._settings) as lease:
            subscriber = self._register()
            opened, is_snapshot = self._opened(subscriber)
            position = DeliveryPosition(self._store, lease, self.name, self._input_hold)
            parts = self._follower.parts(opened, stop)
            yield from DeliveryRun(position, subscriber.position_ms).of(parts, stop, is_snapshot=is_snapshot)

    def forget(self) -> None:
        """Give up the client's place: it holds nothing any more, and would start over."""
        self._store.forget(self.name)
        self._input_hold.drop()

    def _register(self) -> Subscriber:
        found = self._store.register(Subscriber(self.name, SubscriberKind.CLIENT, self.name, self._text))
        if found.statement != self._text:
            raise DefinitionError(
                f'durable client "{self.name}" has another statement',
                code="client-statement",
                detail=f"It follows: {found.statement}",
                hint="Use another name; or let go of its place with forget(), and it starts over.",
            )
        return found

    def _opened(self, subscriber: Subscriber) -> tuple[Opened, bool]:
        """Its SUBSCRIBE from where it stopped, and whether a snapshot comes first."""
        statement = self._follower.statement
        try:
            if subscriber.position_ms is not None:
                self._input_hold.resume(subscriber.position_ms)
                self._input_hold.taken(subscriber.position_ms, at_once=True)
                return self._follower.from_position(subscriber.position_ms), False
            return self._follower.from_snapshot(self._input_hold.start(statement.as_of_ms, self._follower.latest_ms)), (
                statement.snapshot
            )
        except SubscriberLapsed:
            if self._on_lapse is OnLapse.STOP:
                raise
            logger.warning("durable client %s starts over from a snapshot", self.name)
            latest_ms = self._follower.latest_ms()
            self._input_hold.restart(latest_ms)
            return self._follower.from_new_snapshot(latest_ms), True
