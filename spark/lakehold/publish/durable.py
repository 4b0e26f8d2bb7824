"""Durable clients: programs that process the output of SUBSCRIBEs and, after a restart, continue where they stopped.

A client is *not started* until its first run, then *reading* its first snapshot, and *following* once it has acknowledged that
snapshot; its position is stored in each of these states. Rows are delivered again until they are acknowledged, and never after
that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from threading import Event
from typing import Any

from lakehold.definitions import OnLapse
from lakehold.errors import DefinitionError, LakeholdError, SubscriberLapsed
from lakehold.publish.beginning import Beginning
from lakehold.publish.deliveries import ONLY, Delivery, DeliveryPosition, DeliveryRun
from lakehold.publish.follower import FollowedTogether, FollowedWindow, Follower
from lakehold.publish.input_hold import InputHold
from lakehold.publish.known_columns import KnownColumns
from lakehold.settings import Settings
from lakehold.spark_errors import readable_each
from lakehold.state.lease import leased
from lakehold.state.subscribers import Subscriber, SubscriberKind, SubscriberStore
from lakehold.subscribe.limited_read import Deadline
from lakehold.subscribe.statement import Subscribe
from lakehold.times import now_ms

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
        followers: Readers of its SUBSCRIBEs, by the names of these; a single one is called `ONLY`.
        input_hold: The client's hold.
        store: Stores the client's position, and the lease of the process that runs it.
        settings: Says how long a lease lasts.
        parse: Parses the text of a SUBSCRIBE.
        on_lapse: What to do if the hold was moved past the acknowledged position.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        name: str,
        followers: Mapping[str, Follower],
        input_hold: InputHold,
        store: SubscriberStore,
        settings: Settings,
        parse: Callable[[str], Subscribe],
        on_lapse: OnLapse,
    ) -> None:
        _check(name, followers)
        self.name = name
        self._text = text_of({each: follower.statement for each, follower in followers.items()})
        self._statements = tuple(followers)
        self._known = KnownColumns(input_hold.columns_moved, input_hold.table_replaced)
        checked = (
            replace(follower, check=partial(self._known.check, statement=each)) for each, follower in followers.items()
        )
        self._followed = FollowedTogether(tuple(checked))
        self._input_hold = input_hold
        self._store = store
        self._settings = settings
        self._parse = parse
        self._beginning = Beginning(
            f"durable client {name}", input_hold, self._known, starts_over=on_lapse is OnLapse.RESNAPSHOT
        )

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
        on_snapshot: Callable[[Any], None],
        on_update: Callable[[int, Any], None],
        stop: Event | None = None,
        *,
        max_rows: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Call back with all changes until now; with `stop` follow the lake until it is set.

        A callback that returns acknowledges its rows. A client with several statements gets the rows as `Delivery.by_statement`.

        Args:
            on_snapshot: Takes all rows of a snapshot: once at the beginning, and again after a lapse.
            on_update: Takes a timestamp and its rows.
            stop: Ends the run when set; checked between two timestamps.
            max_rows: The run ends after the timestamp with which it has so many rows.
            timeout: Seconds for which to wait for more changes.

        Raises:
            SubscriberBusy: Another process runs the client.
            SubscriberLapsed: Its hold was moved past its position, or columns that it has read are gone.
            DefinitionError: The client exists with another statement, or its tables cannot be read.
        """
        for delivery in self.deliveries(stop, max_rows=max_rows, timeout=timeout):
            rows = iter(delivery) if self._statements == (ONLY,) else delivery.by_statement
            if delivery.is_snapshot:
                on_snapshot(rows)
            else:
                on_update(delivery.timestamp, rows)
            delivery.acknowledge()

    def deliveries(
        self, stop: Event | None = None, *, max_rows: int | None = None, timeout: float | None = None
    ) -> Generator[Delivery, None, None]:
        """Yield deliveries, which the client acknowledges itself; `run` does that for callbacks. Raises as `run` does.

        Acknowledging a delivery acknowledges all before it.
        """
        return readable_each(self._deliveries(stop, max_rows, timeout))

    def _deliveries(self, stop: Event | None, max_rows: int | None, timeout: float | None) -> Iterator[Delivery]:
        self._register()
        with leased(self._store, self.name, self._settings) as lease:
            self._input_hold.keep_max_lag()
            client = self._store.get(self.name)
            position = DeliveryPosition(self._store, lease, client, self._input_hold, self._known, self._settings)
            ends = stop if timeout is None else Deadline(stop or Event(), timeout)
            try:
                while True:
                    run, windows, is_snapshot = self._started(position, ends)
                    try:
                        yield from run.of(self._statements, windows, stop, is_snapshot=is_snapshot, max_rows=max_rows)
                    except SubscriberLapsed:
                        # Its columns have changed while it followed: opening again starts over.
                        if not self._beginning.starts_over:
                            raise
                        run.replace()
                    else:
                        return
            finally:
                position.end()

    def forget(self) -> None:
        """Drop the client's hold and forget its position; its next run starts over.

        Killed in between, it has released the history, and the client is where it was: call it again.
        """
        self._input_hold.drop()
        self._store.forget(self.name)

    def _started(
        self, position: DeliveryPosition, stop: Event | None
    ) -> tuple[DeliveryRun, Iterator[FollowedWindow], bool]:
        """Begin to deliver where the client stopped; also return the output, and whether a snapshot comes first."""
        client = self._store.get(self.name)
        start = self._beginning.at(client.position_ms, lambda: client.columns, self._followed)
        is_restart = start.restarts_at_ms is not None
        is_snapshot = is_restart or (client.position_ms is None and self._followed.has_snapshot)
        # A new snapshot may be of a time whose changes were acknowledged: it is to be acknowledged all the same.
        run = DeliveryRun(position, None if is_restart else client.position_ms)
        return run, self._followed.windows(start.opened, stop), is_snapshot

    def _register(self) -> Subscriber:
        # Positions that were acknowledged late must not be taken for those of a client forgotten since: epochs never repeat.
        new = Subscriber(self.name, SubscriberKind.CLIENT, self.name, self._text, epoch=now_ms())
        found = self._store.register(new)
        if self._text not in (found.statement, _as_kept_now(found.statement, self._statements, self._parse)):
            raise DefinitionError(
                f'durable client "{self.name}" already exists with another statement',
                code="client-statement",
                detail=f"It follows: {found.statement}",
                hint="Use another name, or discard the client's position with forget() and start over.",
            )
        return found


def text_of(statements: Mapping[str, Subscribe]) -> str:
    """Return the text under which a client's statements are stored."""
    if statements.keys() == {ONLY}:
        return statements[ONLY].text
    return "; ".join(f"{name}: {statement.text}" for name, statement in statements.items())


def _as_kept_now(stored: str, names: Sequence[str], parse: Callable[[str], Subscribe]) -> str:
    """Return a stored text as `text_of` writes it: earlier versions kept the catalog's name before columns."""
    labels = [f"{name}: " if tuple(names) != (ONLY,) else "" for name in names]
    texts = re.fullmatch("; ".join(f"{label}(.*)" for label in labels), stored, re.DOTALL)
    if texts is None:
        return stored
    try:
        return "; ".join(f"{label}{parse(text).text}" for label, text in zip(labels, texts.groups(), strict=True))
    except LakeholdError:
        return stored


def _check(client: str, followers: Mapping[str, Follower]) -> None:
    """Raise `DefinitionError` unless the names can be stored, and the statements can be read side by side."""
    named = followers if followers.keys() != {ONLY} else ()
    for what, name in [("durable client", client), *(("statement", each) for each in named)]:
        if not _NAME.fullmatch(name):
            raise DefinitionError(
                f'"{name}" is not a valid name for a {what}',
                code="client-name",
                hint="Use letters, digits, _ and -, beginning with a letter.",
            )
    begin = {follower.statement.as_of for follower in followers.values()}
    if len(begin) != 1:
        raise DefinitionError(
            f'the statements of durable client "{client}" begin at different times'
            if begin
            else f'durable client "{client}" has no statement',
            code="client-statements",
            hint="Write the same AS OF in each, or none."
            if begin
            else "Pass one SUBSCRIBE, or several by their names.",
        )
