"""The hold of a subscriber: it keeps readable what has not been taken yet, and lets go of what has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from lakehold.errors import NotReadable, SubscriberLapsed
from lakehold.holds.commands import HoldCommands, NewHold
from lakehold.state.holds import Hold
from lakehold.times import iso

_PAUSE_S = 1.0
"""A hold follows its subscriber at most so often: it may stay behind, and each move is a commit that tags may follow."""


@dataclass
class InputHold:
    """The hold of one subscriber.

    Args:
        holds: The lake's.
        new: What it is when it is made; `kept_by` is the subscriber.
        what: The subscriber, for messages.
        hint: What to do when it lapsed.
    """

    holds: HoldCommands
    new: NewHold
    what: str
    hint: str
    _moved_at_s: float = field(default=0.0, init=False)

    def hold(self) -> Hold | None:
        """The hold as it stands; None when there is none."""
        return next((hold for hold in self.holds.all() if hold.kept_by == self.new.kept_by), None)

    @contextmanager
    def declared(self, at_ms: int | None, tables: Mapping[str, str]) -> Iterator[None]:
        """The hold of a subscription that the block declares: it is there with it, or not at all.

        Args:
            at_ms: From when on; None: from the first readable time on.
            tables: Object ids of tables that the block declares as well, by full name.

        Raises:
            NotReadable: `at_ms` is before what can be read.
        """
        with self.holds.created(replace(self.new, at_ms=at_ms), tables):
            yield

    def begin(self, at_ms: int) -> Hold:
        """The hold, which is made at `at_ms` if there is none.

        Raises:
            NotReadable: `at_ms` is before what can be read.
        """
        return self.hold() or self.holds.create(replace(self.new, at_ms=at_ms))

    def start(self, as_of_ms: int | None, latest_ms: Callable[[], int]) -> int:
        """The time at which a subscriber without a position begins, which is held then.

        Args:
            as_of_ms: What it asks for; None: where its hold is, which was made with it.
            latest_ms: Tells the latest readable time, where it has no hold yet.

        Raises:
            SubscriberLapsed: `as_of_ms` is not kept any more.
        """
        if as_of_ms is not None:
            self.resume(as_of_ms + 1)
            return as_of_ms
        hold = self.hold()
        if hold is not None and hold.at_ms is not None:
            return hold.at_ms
        found_ms = latest_ms()
        self.restart(found_ms)
        return found_ms

    def resume(self, position_ms: int) -> None:
        """Check that what changed from `position_ms` on (inclusive) is still kept.

        Raises:
            SubscriberLapsed: It is not.
        """
        hold = self.hold()
        if hold is None:
            try:
                self.begin(position_ms - 1)
            except NotReadable as error:
                raise self._lapsed(position_ms, f"Its hold was dropped. {error.detail}") from error
        elif hold.at_ms is not None and hold.at_ms > position_ms - 1:
            by = "; MAX LAG moved it there" if hold.forced_from_ms is not None else ""
            stands = f'Its hold "{hold.name}" stands at {hold.at_ms} ({iso(hold.at_ms)} UTC){by}.'
            raise self._lapsed(position_ms, stands)

    def restart(self, at_ms: int) -> None:
        """Let go of what was missed: the hold is made, or goes on, to `at_ms`."""
        hold = self.begin(at_ms)
        if hold.at_ms is None or hold.at_ms < at_ms:
            self.holds.advance(hold.name, at_ms)

    def taken(self, position_ms: int, *, at_once: bool = False) -> None:
        """What is below `position_ms` (exclusive) has been taken.

        Args:
            position_ms: What comes next is read from here on, which takes the state just before.
            at_once: Whether the hold moves even if it did a moment ago.
        """
        now_s = time.monotonic()
        if not at_once and now_s - self._moved_at_s < _PAUSE_S:
            return
        hold = self.hold()
        if hold is None or (hold.at_ms is not None and hold.at_ms >= position_ms - 1):
            return
        self.holds.advance(hold.name, position_ms - 1)
        self._moved_at_s = now_s

    def drop(self) -> None:
        """Let go of everything; harmless when there is no hold."""
        if self.new.kept_by is not None:
            self.holds.drop_kept_by(self.new.kept_by)

    def _lapsed(self, position_ms: int, detail: str) -> SubscriberLapsed:
        return SubscriberLapsed(
            f"{self.what} has fallen behind what is kept",
            detail=f"It has come to {position_ms} ({iso(position_ms)} UTC). {detail}",
            hint=self.hint,
        )
