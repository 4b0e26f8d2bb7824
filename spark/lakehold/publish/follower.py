"""Follower of a SUBSCRIBE: reads its output from a position onward, and reports how far the output is complete.

Publishers of subscriptions and durable clients read through it. A position is the first timestamp that was not processed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Event

from lakehold.subscribe.output_batches import Complete, OutputChunk
from lakehold.subscribe.relation import TimelinesByName
from lakehold.subscribe.statement import Subscribe
from lakehold.subscribe.subscription import Window
from lakehold.subscribe.subscription_opening import Opened, Subscribing
from lakehold.timeline.as_of import LATEST, AsOf
from lakehold.timeline.net import net_timelines
from lakehold.timeline.timelines import common_window

POLL_S = 0.5
"""How often a follower polls the lake."""


@dataclass(frozen=True)
class Follower:
    """A reader of one SUBSCRIBE.

    Args:
        subscribing: Opens the statement.
        statement: The SUBSCRIBE, without an end and without PROGRESS.
        is_net: Whether all changes that can be read at once come as one, at the timestamp of the last.
        is_of_view: Whether lakehold wrote the statement, so that no setting of users switches it off.
    """

    subscribing: Subscribing
    statement: Subscribe
    is_net: bool = False
    is_of_view: bool = False

    def from_snapshot(self, as_of_ms: int) -> Opened:
        """Open the SUBSCRIBE at a time, with all rows of that time if the statement requests them."""
        return self._open(replace(self.statement, as_of=AsOf(as_of_ms)))

    def from_new_snapshot(self, as_of_ms: int) -> Opened:
        """Open the SUBSCRIBE at a time, always with all rows of that time."""
        return self._open(replace(self.statement, snapshot=True, as_of=AsOf(as_of_ms)))

    def latest_ms(self) -> int:
        """Return the latest time at which all tables of the SUBSCRIBE are readable."""
        return self._resolved(LATEST)

    def start_ms(self) -> int:
        """Return the time at which the statement begins to read if it begins now."""
        return self._resolved(self.statement.as_of)

    def _resolved(self, as_of: AsOf) -> int:
        found = as_of.load(self.subscribing.timelines, self.statement.tables)
        return as_of.resolve(list(found.values()))

    def from_position(self, position_ms: int) -> Opened:
        """Open the SUBSCRIBE for the changes from a time onward (inclusive)."""
        return self._open(replace(self.statement, snapshot=False, as_of=AsOf(position_ms - 1)))

    def _open(self, statement: Subscribe) -> Opened:
        return self.subscribing.open(statement, is_users=not self.is_of_view)

    def output(self, opened: Opened, stop: Event | None) -> Iterator[OutputChunk | Complete]:
        """Yield the output: the chunks that can be read now, then `Complete`, and so on.

        If columns of the tables change, later chunks have the columns of the newest tables.

        Args:
            opened: The opened SUBSCRIBE to begin with.
            stop: Ends the output when set; checked before each poll. None: it ends with what can be read now.
        """
        until_ms = opened.window.until_ms
        yield from self._first(opened)
        yield Complete(until_ms)
        while stop is not None and not stop.wait(POLL_S):
            timelines = opened.subscription.timelines_of(Window(until_ms - 1, until_ms))
            _, upper_ms = common_window(list(timelines.values()))
            if upper_ms <= until_ms:
                continue
            if _columns(timelines) != _columns(opened.timelines):
                opened = self.from_position(until_ms)
                upper_ms = opened.window.until_ms
                yield from self._first(opened)
            else:
                shown = net_timelines(timelines, until_ms - 1, upper_ms) if self.is_net else timelines
                yield from opened.subscription.changes(shown, until_ms - 1, upper_ms)
            until_ms = upper_ms
            yield Complete(until_ms)

    def _first(self, opened: Opened) -> Iterator[OutputChunk]:
        window = opened.window
        if self.is_net:
            opened = replace(opened, timelines=net_timelines(opened.timelines, window.as_of_ms, window.until_ms))
        return opened.chunks()


def _columns(timelines: TimelinesByName) -> dict[str, object]:
    return {name: timeline.table.schema().as_struct() for name, timeline in timelines.items()}
