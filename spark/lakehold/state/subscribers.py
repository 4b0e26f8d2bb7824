"""Those who follow changes over restarts: how far each has come, and which process runs it now.

A *subscriber* is a subscription, whose changes go to a table, or a durable client, whose changes go to a program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from pyiceberg.catalog import Catalog

from lakehold.errors import DefinitionError, LeaseLost, SubscriberBusy
from lakehold.model.readers import Lease
from lakehold.state.state_table import Row, StateValues
from lakehold.times import now_ms

SUBSCRIBERS_TABLE = "mz_catalog.mz_subscribers"


class SubscriberKind(StrEnum):
    """What follows."""

    SUBSCRIPTION = "subscription"
    CLIENT = "client"


@dataclass(frozen=True)
class Subscriber:
    """One row of `mz_catalog.mz_subscribers`.

    Attributes:
        subscriber_id: Id of the subscription; of a client its name.
        kind: What it is.
        name: Of the subscription or client.
        statement: The SUBSCRIBE that it follows, as written.
        position_ms: It has taken all that is below (exclusive); None before it has the first snapshot.
        output_ms: Of a subscription: the position of its output table that `position_ms` goes on from, with nothing to publish
            in between.
        epoch: How often a process has taken it.
        lease: Which process runs it.
    """

    subscriber_id: str
    kind: SubscriberKind
    name: str
    statement: str
    position_ms: int | None = None
    output_ms: int | None = None
    epoch: int = 0
    lease: Lease | None = None

    def __str__(self) -> str:
        return f'{self.kind} "{self.name}"'


Subscribers = tuple[Subscriber, ...]


class SubscriberStore(ABC):
    """Reads and changes subscribers; each change is one compare-and-set.

    Args:
        clock: Epoch milliseconds; leases are judged by it.
    """

    def __init__(self, clock: Callable[[], int] = now_ms) -> None:
        self._clock = clock

    @abstractmethod
    def subscribers(self) -> Subscribers:
        """All subscribers now."""

    @abstractmethod
    def _change(self, apply: Callable[[Subscribers], Iterable[Subscriber]]) -> Subscribers:
        """Replace all subscribers by `apply(subscribers)` in one compare-and-set and return them."""

    def find(self, subscriber_id: str) -> Subscriber | None:
        """The subscriber, if there is one."""
        return _find(self.subscribers(), subscriber_id)

    def register(self, new: Subscriber) -> Subscriber:
        """The subscriber with the id of `new`, which is `new` if there was none."""
        known = self._change(lambda all_: all_ if _find(all_, new.subscriber_id) else (*all_, new))
        return _found(known, new.subscriber_id)

    def forget(self, subscriber_id: str) -> None:
        """Remove a subscriber; harmless when there is none. A process that runs it loses its lease."""
        self._change(lambda all_: (s for s in all_ if s.subscriber_id != subscriber_id))

    def acquire(self, subscriber_id: str, owner: str, lease_until_ms: int) -> None:
        """Take the subscriber for `owner`; a lease that ran out is taken over.

        Raises:
            SubscriberBusy: Another's lease is live.
        """

        def acquired(subscriber: Subscriber) -> Subscriber:
            lease, now = subscriber.lease, self._clock()
            if lease and lease.keeps_out(owner, now):
                raise SubscriberBusy(
                    f"{subscriber} is being run by another process",
                    detail=lease.told,
                    hint="Wait until it has finished; if it is gone, this one is free when the lease runs out.",
                )
            return replace(subscriber, epoch=subscriber.epoch + 1, lease=Lease(owner, now, lease_until_ms))

        self._change_one(subscriber_id, acquired)

    def renew(self, subscriber_id: str, owner: str, lease_until_ms: int) -> None:
        """Prolong `owner`'s lease.

        Raises:
            LeaseLost: Another took the subscriber over, or it is gone.
        """
        self._change_own(
            subscriber_id, owner, lambda s, lease: replace(s, lease=replace(lease, until_ms=lease_until_ms))
        )

    def release(self, subscriber_id: str, owner: str) -> None:
        """Let go of the subscriber; harmless when the lease is lost already."""
        self._change(
            lambda all_: (
                replace(s, lease=None) if s.subscriber_id == subscriber_id and s.lease and s.lease.owner == owner else s
                for s in all_
            )
        )

    def move(self, subscriber_id: str, owner: str, position_ms: int | None, output_ms: int | None = None) -> None:
        """Keep how far `owner` has brought the subscriber.

        Raises:
            LeaseLost: Another took the subscriber over, or it is gone.
        """
        self._change_own(subscriber_id, owner, lambda s, _: replace(s, position_ms=position_ms, output_ms=output_ms))

    def _change_own(self, subscriber_id: str, owner: str, apply: Callable[[Subscriber, Lease], Subscriber]) -> None:
        def changed(subscriber: Subscriber) -> Subscriber:
            if subscriber.lease is None or subscriber.lease.owner != owner:
                found = f'"{subscriber.lease.owner}"' if subscriber.lease else "nobody"
                raise LeaseLost(
                    f"{subscriber} is no longer this process's to run",
                    detail=f'Expected "{owner}" to run it, found {found}.',
                    hint="Nothing was published twice. Run it again.",
                )
            return apply(subscriber, subscriber.lease)

        self._change_one(subscriber_id, changed)

    def _change_one(self, subscriber_id: str, apply: Callable[[Subscriber], Subscriber]) -> None:
        def changed(known: Subscribers) -> Subscribers:
            subscriber = _found(known, subscriber_id)
            after = apply(subscriber)
            return tuple(after if s is subscriber else s for s in known)

        self._change(changed)


class PyIcebergSubscribers(SubscriberStore):
    """The subscribers of the lake behind `catalog`."""

    def __init__(self, catalog: Catalog, clock: Callable[[], int] = now_ms) -> None:
        super().__init__(clock)
        self._subscribers = StateValues(catalog, SUBSCRIBERS_TABLE, _from_row, _to_row)

    def subscribers(self) -> Subscribers:
        """All subscribers now."""
        return self._subscribers.values()

    def _change(self, apply: Callable[[Subscribers], Iterable[Subscriber]]) -> Subscribers:
        return self._subscribers.change(apply)


def _find(subscribers: Subscribers, subscriber_id: str) -> Subscriber | None:
    return next((s for s in subscribers if s.subscriber_id == subscriber_id), None)


def _found(subscribers: Subscribers, subscriber_id: str) -> Subscriber:
    found = _find(subscribers, subscriber_id)
    if found is None:
        raise DefinitionError(
            "the subscription or client was dropped while it ran",
            code="subscriber-missing",
            hint="Create it again to go on.",
        )
    return found


def _from_row(row: Row) -> Subscriber:
    return Subscriber(
        subscriber_id=row["id"],
        kind=SubscriberKind(row["type"]),
        name=row["name"],
        statement=row["statement"],
        position_ms=row["position"],
        output_ms=row["output_position"],
        epoch=row["epoch"],
        lease=Lease(row["owner"], row["lease_since_ms"], row["lease_until_ms"]) if row["owner"] else None,
    )


def _to_row(subscriber: Subscriber) -> Row:
    lease = subscriber.lease
    return {
        "id": subscriber.subscriber_id,
        "type": subscriber.kind.value,
        "name": subscriber.name,
        "statement": subscriber.statement,
        "position": subscriber.position_ms,
        "output_position": subscriber.output_ms,
        "epoch": subscriber.epoch,
        "owner": lease.owner if lease else None,
        "lease_since_ms": lease.since_ms if lease else None,
        "lease_until_ms": lease.until_ms if lease else None,
    }
