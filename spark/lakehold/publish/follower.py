"""Follower of SUBSCRIBEs: reads their output from a position onward, and reports how far it is complete.

Publishers of subscriptions and durable clients read through it. A position is the first timestamp that was not processed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Event

from lakehold.subscribe.output_batches import Complete, OutputChunk
from lakehold.subscribe.query_columns import QueryColumns
from lakehold.subscribe.relation import TimelinesByName
from lakehold.subscribe.statement import Subscribe
from lakehold.subscribe.subscription import Window
from lakehold.subscribe.subscription_opening import Opened, Subscribing
from lakehold.timeline.as_of import AsOf
from lakehold.timeline.continuation import check_continues
from lakehold.timeline.net import net_timelines
from lakehold.timeline.table_timeline import Timeline
from lakehold.timeline.timelines import common_window, together

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
        check: Raises an error if tables and columns that are opened, also later with other columns, must not be read.
    """

    subscribing: Subscribing
    statement: Subscribe
    is_net: bool = False
    is_of_view: bool = False
    check: Callable[[Subscribe, QueryColumns], None] | None = None

    def from_snapshot(self, as_of_ms: int) -> Opened:
        """Open the SUBSCRIBE at a time, with all rows of that time if the statement requests them."""
        return self._open(replace(self.statement, as_of=AsOf(as_of_ms)))

    def from_new_snapshot(self, as_of_ms: int) -> Opened:
        """Open the SUBSCRIBE at a time, always with all rows of that time."""
        return self._open(replace(self.statement, snapshot=True, as_of=AsOf(as_of_ms)))

    def load(self, as_of: AsOf) -> list[Timeline]:
        """Build the timelines of the tables of the SUBSCRIBE, reaching back to `as_of`."""
        return [*as_of.load(self.subscribing.timelines, self.statement.tables).values()]

    def start_ms(self) -> int:
        """Return the time at which the statement begins to read if it begins now."""
        return self.statement.as_of.resolve(self.load(self.statement.as_of))

    def from_position(self, position_ms: int) -> Opened:
        """Open the SUBSCRIBE for the changes from a time onward (inclusive)."""
        return self._open(replace(self.statement, snapshot=False, as_of=AsOf(position_ms - 1)))

    def _open(self, statement: Subscribe) -> Opened:
        return self.subscribing.open(statement, is_users=not self.is_of_view, check=self.check)

    def output(self, opened: Opened, stop: Event | None) -> Iterator[OutputChunk | Complete]:
        """Yield the output: the chunks that can be read now, then `Complete`, and so on.

        If columns of the tables change, later chunks have the columns of the newest tables.

        Args:
            opened: The opened SUBSCRIBE to begin with.
            stop: Ends the output when set; checked before each poll. None: it ends with what can be read now.
        """
        for window in FollowedTogether((self,)).windows([opened], stop):
            yield from window.outputs[0]
            yield Complete(window.until_ms)

    def shown(self, timelines: TimelinesByName, after_ms: int, until_ms: int) -> TimelinesByName:
        """Return what is read of the timelines between two times, both exclusive: all timestamps, or the last alone."""
        return net_timelines(timelines, after_ms, until_ms) if self.is_net else timelines


@dataclass(frozen=True)
class FollowedWindow:
    """The output of one or more SUBSCRIBEs up to a time.

    Attributes:
        columns: Names of the columns of each.
        outputs: The output of each, in the order of its timestamps. It is read when it is iterated over, once.
        until_ms: All outputs are complete below it (exclusive).
    """

    columns: tuple[tuple[str, ...], ...]
    outputs: tuple[Iterator[OutputChunk], ...]
    until_ms: int


@dataclass(frozen=True)
class FollowedTogether:
    """Readers of one or more SUBSCRIBEs that are read side by side, at common timestamps.

    Args:
        followers: The readers; their statements begin at one time.
    """

    followers: tuple[Follower, ...]

    @property
    def as_of(self) -> AsOf:
        """Return the time at which the statements begin."""
        return self.followers[0].statement.as_of

    @property
    def is_net(self) -> bool:
        """Return whether all changes that can be read at once come as one."""
        return any(follower.is_net for follower in self.followers)

    @property
    def has_snapshot(self) -> bool:
        """Return whether a statement begins with all rows."""
        return any(follower.statement.snapshot for follower in self.followers)

    def resolved(self, as_of: AsOf) -> int:
        """Return the timestamp that a time stands for on the timelines of all their tables."""
        return as_of.resolve([timeline for follower in self.followers for timeline in follower.load(as_of)])

    def from_snapshot(self, as_of_ms: int) -> list[Opened]:
        """Open them at a time, with all rows of that time where a statement requests them."""
        return [follower.from_snapshot(as_of_ms) for follower in self.followers]

    def from_new_snapshot(self, as_of_ms: int) -> list[Opened]:
        """Open them at a time, always with all rows of that time."""
        return [follower.from_new_snapshot(as_of_ms) for follower in self.followers]

    def from_position(self, position_ms: int) -> list[Opened]:
        """Open them for the changes from a time onward (inclusive)."""
        return [follower.from_position(position_ms) for follower in self.followers]

    def windows(self, opened: Sequence[Opened], stop: Event | None) -> Iterator[FollowedWindow]:
        """Yield the windows that can be read, each complete for all of them; read one before you take the next.

        Args:
            opened: The SUBSCRIBEs, opened at one time.
            stop: Ends the windows when set; checked before each poll of the lake. None: they end with what can be read now.
        """
        now = [*opened]
        read = found = _together(each.timelines for each in now)
        until_ms = _frontier_ms(found)
        firsts = []
        for follower, first, timelines in zip(self.followers, now, found, strict=True):
            as_of_ms = first.window.as_of_ms
            shown = follower.shown(timelines, as_of_ms, until_ms)
            firsts.append(replace(first, timelines=shown, window=Window(as_of_ms, until_ms)).chunks())
        yield FollowedWindow(tuple(each.columns for each in now), tuple(firsts), until_ms)
        while stop is not None and not stop.wait(POLL_S):
            after_ms = until_ms - 1
            found = _together(each.subscription.timelines_of(Window(after_ms, until_ms)) for each in now)
            if _frontier_ms(found) <= until_ms:
                continue
            for place, follower in enumerate(self.followers):
                if _columns(found[place]) != _columns(now[place].timelines):
                    now[place] = follower.from_position(until_ms)
                    found[place] = now[place].timelines
            for each, before, timelines in zip(now, read, found, strict=True):
                check_continues(before, timelines, until_ms, each.subscription.timelines.holds)
            read = found = _together(found)
            upper_ms = _frontier_ms(found)
            outputs = tuple(
                each.subscription.changes(follower.shown(timelines, after_ms, upper_ms), after_ms, upper_ms)
                for follower, each, timelines in zip(self.followers, now, found, strict=True)
            )
            yield FollowedWindow(tuple(each.columns for each in now), outputs, upper_ms)
            until_ms = upper_ms


def _together(found: Iterable[TimelinesByName]) -> list[TimelinesByName]:
    """Return the timelines of several SUBSCRIBEs as those of one, so that they have the same timestamps."""
    each = [*found]
    shared = together({name: timeline for timelines in each for name, timeline in timelines.items()})
    return [{name: shared[name] for name in timelines} for timelines in each]


def _frontier_ms(found: Iterable[TimelinesByName]) -> int:
    """Return the time below which (exclusive) all tables of several SUBSCRIBEs are readable."""
    return common_window([timeline for timelines in found for timeline in timelines.values()])[1]


def _columns(timelines: TimelinesByName) -> dict[str, object]:
    return {name: timeline.table.schema().as_struct() for name, timeline in timelines.items()}
