"""A SUBSCRIBE read from a position on, with what tells how far its output is complete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Event

from lakehold.subscribe.batches import OutputChunk
from lakehold.subscribe.opening import Opened, Subscribing
from lakehold.subscribe.relation import TimelinesByName
from lakehold.subscribe.statement import Subscribe
from lakehold.subscribe.subscription import Window
from lakehold.timeline.timelines import common_window

POLL_S = 0.5
"""How often a follower looks at the lake."""


@dataclass(frozen=True)
class Complete:
    """All output below `until_ms` (exclusive) has come."""

    until_ms: int


@dataclass(frozen=True)
class Follower:
    """Reads one SUBSCRIBE.

    Args:
        subscribing: Opens it.
        statement: What it says, without an end and without PROGRESS.
    """

    subscribing: Subscribing
    statement: Subscribe

    def from_snapshot(self, as_of_ms: int) -> Opened:
        """Begin at a time, with the rows of then if the statement wants them."""
        return self.subscribing.open(replace(self.statement, as_of_ms=as_of_ms))

    def from_new_snapshot(self, as_of_ms: int) -> Opened:
        """Begin at a time with the rows of then, whatever the statement wants."""
        return self.subscribing.open(replace(self.statement, snapshot=True, as_of_ms=as_of_ms))

    def latest_ms(self) -> int:
        """The latest time at which all of its tables are readable."""
        timelines = self.subscribing.timelines.settled(self.statement.tables, [])
        _, upper_ms = common_window(list(timelines.values()))
        return upper_ms - 1

    def from_position(self, position_ms: int) -> Opened:
        """Go on with what changed from a time on (inclusive)."""
        return self.subscribing.open(replace(self.statement, snapshot=False, as_of_ms=position_ms - 1))

    def parts(self, opened: Opened, stop: Event | None) -> Iterator[OutputChunk | Complete]:
        """The output: the pieces of what can be read now, then `Complete`, and so on.

        When columns of its tables change, the pieces that follow have the columns of the newest table.

        Args:
            opened: Where it begins.
            stop: Ends it, between two looks at the lake, when set; None: it ends with what can be read now.
        """
        until_ms = opened.window.until_ms
        yield from opened.chunks()
        yield Complete(until_ms)
        while stop is not None and not stop.wait(POLL_S):
            timelines = opened.subscription.timelines_of(Window(until_ms - 1, until_ms))
            _, upper_ms = common_window(list(timelines.values()))
            if upper_ms <= until_ms:
                continue
            if _columns(timelines) != _columns(opened.timelines):
                opened = self.from_position(until_ms)
                upper_ms = opened.window.until_ms
                yield from opened.chunks()
            else:
                yield from opened.subscription.changes(timelines, until_ms - 1, upper_ms)
            until_ms = upper_ms
            yield Complete(until_ms)


def _columns(timelines: TimelinesByName) -> dict[str, object]:
    return {name: timeline.table.schema().as_struct() for name, timeline in timelines.items()}
