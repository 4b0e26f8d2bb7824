"""Subscribers, which follow changes over restarts: how far each has come, and which process runs it now.

A *subscriber* is a subscription or a materialized view, whose changes go to a table, or a durable client, whose changes go to a
program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from lakehold.errors import SubscriberBusy, SubscriberMissing
from lakehold.model.leases import Lease, LeaseRules, released
from lakehold.model.readers import ReaderError
from lakehold.state.lease import LeaseChange, Leases
from lakehold.state.rows import Rows
from lakehold.state.store import State
from lakehold.times import now_ms

_NONE: Mapping[str, Mapping[str, int | str]] = MappingProxyType({})


class SubscriberKind(StrEnum):
    """The kind of a subscriber."""

    SUBSCRIPTION = "subscription"
    VIEW = "materialized-view"
    CLIENT = "client"

    @property
    def spoken(self) -> str:
        """Return the words for the kind."""
        return self.value.replace("-", " ")


@dataclass(frozen=True)
class Subscriber:
    """A row of `mz_catalog.mz_subscribers`.

    Attributes:
        subscriber_id: Id of a subscription or view, or name of a client.
        kind: What it is.
        name: Name of the subscription, view or client.
        statement: The SUBSCRIBE that it follows, as written.
        position_ms: It has taken all changes with lower timestamps; None before it has taken the first rows.
        output_ms: For a subscription or view: up to which timestamp its table was written when `position_ms` was stored. In
            between there was nothing to publish, so the output is complete up to `position_ms`. If the table has another
            position by now, it was written since, and its own position counts. None for a client.
        epoch: The number of times that a process took its lease from another, or from none.
        lease: The lease of the process that runs it.
        error: The error that stopped a view.
        columns: For a client: the Iceberg field ids of the columns that it has read, by table and name, and the table's UUID by
            the empty name. With several statements, each has its own: its name stands before that of the table. The tables of
            subscriptions and views record theirs.
    """

    subscriber_id: str
    kind: SubscriberKind
    name: str
    statement: str
    position_ms: int | None = None
    output_ms: int | None = None
    epoch: int = 0
    lease: Lease | None = None
    error: ReaderError | None = None
    columns: Mapping[str, Mapping[str, int | str]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f'{self.kind.spoken} "{self.name}"'


def position_of(subscriber: Subscriber | None, output_ms: int | None) -> int | None:
    """Return how far the output of a subscription or view is complete; None if nothing has been published.

    If nothing had to be published since the last commit to the table, the subscriber's row has a later position, together with
    the position of the commit which it follows.

    Args:
        subscriber: The subscriber's row.
        output_ms: The position that the table records with its last commit.
    """
    if subscriber is None or subscriber.position_ms is None or output_ms is None or subscriber.output_ms != output_ms:
        return output_ms
    return max(subscriber.position_ms, output_ms)


Subscribers = tuple[Subscriber, ...]

SUBSCRIBERS = Rows(
    "mz_catalog.mz_subscribers",
    Subscriber,
    {
        "subscriber_id": "id",
        "kind": "type",
        "position_ms": "position",
        "output_ms": "output_position",
        "lease.holder": "owner",
        "lease.since_ms": "lease_since_ms",
        "lease.until_ms": "lease_until_ms",
    },
)


class SubscriberStore(Leases):
    """A store of a lake's subscribers, by id; each change is one compare-and-set.

    Args:
        state: The state tables.
        clock: Epoch milliseconds; leases expire by it.
    """

    def __init__(self, state: State, clock: Callable[[], int] = now_ms) -> None:
        super().__init__(clock)
        self._subscribers = state.store(SUBSCRIBERS)

    def subscribers(self) -> Subscribers:
        """Return all subscribers."""
        return self._subscribers.values()

    def find(self, subscriber_id: str) -> Subscriber | None:
        """Return the subscriber with this id, if it exists."""
        return _find(self.subscribers(), subscriber_id)

    def register(self, new: Subscriber) -> Subscriber:
        """Add a subscriber unless one with its id exists, and return the one that is kept."""
        known = self._subscribers.change(lambda all_: all_ if _find(all_, new.subscriber_id) else (*all_, new))
        return _found(known, new.subscriber_id)

    def forget(self, subscriber_id: str) -> None:
        """Remove a subscriber; harmless if it does not exist. A process that runs it loses its lease."""
        self._subscribers.change(lambda all_: (s for s in all_ if s.subscriber_id != subscriber_id))

    def move(
        self,
        subscriber_id: str,
        holder: str,
        position_ms: int | None,
        output_ms: int | None = None,
        columns: Mapping[str, Mapping[str, int | str]] = _NONE,
    ) -> None:
        """Record how far `holder` has brought the subscriber, which no error stops then.

        An expired lease counts until another process takes it.

        Args:
            subscriber_id: The subscriber.
            holder: The process that runs it, as in its lease.
            position_ms: It has taken all changes with lower timestamps; None: it starts over.
            output_ms: See `Subscriber`; replaces the stored one, also by None.
            columns: See `Subscriber`; replaces the stored ones.

        Raises:
            LeaseLost: Another process took the subscriber over.
            SubscriberMissing: It was dropped.
        """

        def moved(subscriber: Subscriber) -> Subscriber:
            _rules(subscriber).held_by(subscriber.lease, holder)  # Raises LeaseLost.
            return replace(subscriber, position_ms=position_ms, output_ms=output_ms, error=None, columns=columns)

        self._change_one(subscriber_id, moved)

    def stop(self, subscriber_id: str, holder: str, error: ReaderError | None) -> None:
        """Record the error that stopped the subscriber; None: it continues.

        Raises:
            LeaseLost: Another process took the subscriber over.
            SubscriberMissing: It was dropped.
        """

        def stopped(subscriber: Subscriber) -> Subscriber:
            _rules(subscriber).held_by(subscriber.lease, holder)  # Raises LeaseLost.
            return replace(subscriber, error=error)

        self._change_one(subscriber_id, stopped)

    def release(self, name: str, holder: str) -> None:
        """Release the subscriber whose id is `name`; harmless if the lease is lost already, or the subscriber was dropped."""
        self._subscribers.change(
            lambda all_: (replace(s, lease=released(s.lease, holder)) if s.subscriber_id == name else s for s in all_)
        )

    def _change_lease(self, name: str, apply: LeaseChange) -> None:
        def changed(subscriber: Subscriber) -> Subscriber:
            before = subscriber.lease
            after = apply(before, _rules(subscriber))
            changes_holder = after is not None and (before is None or before.holder != after.holder)
            return replace(subscriber, lease=after, epoch=subscriber.epoch + changes_holder)

        self._change_one(name, changed)

    def _change_one(self, subscriber_id: str, apply: Callable[[Subscriber], Subscriber]) -> None:
        def changed(known: Subscribers) -> Subscribers:
            subscriber = _found(known, subscriber_id)
            after = apply(subscriber)
            return tuple(after if s is subscriber else s for s in known)

        self._subscribers.change(changed)


def _rules(subscriber: Subscriber) -> LeaseRules:
    return LeaseRules(
        what=str(subscriber),
        used="run",
        busy=SubscriberBusy,
        when_busy="Wait until that process has finished; if it died, run it again when the lease runs out.",
        when_lost="Nothing was published twice. Run it again.",
    )


def _find(subscribers: Subscribers, subscriber_id: str) -> Subscriber | None:
    return next((s for s in subscribers if s.subscriber_id == subscriber_id), None)


def _found(subscribers: Subscribers, subscriber_id: str) -> Subscriber:
    found = _find(subscribers, subscriber_id)
    if found is None:
        raise SubscriberMissing(
            "the subscription or client was dropped while it ran", hint="Create it again to continue."
        )
    return found
