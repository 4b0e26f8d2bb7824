"""The hold of a subscriber: it keeps the changes that the subscriber has not processed readable, and releases the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from lakehold.errors import NotReadable, SubscriberLapsed
from lakehold.holds.commands import HoldCommands, NewHold
from lakehold.state.holds import Hold
from lakehold.state.subscribers import SubscriberKind
from lakehold.times import iso

_PAUSE_S = 1.0
"""Least time between two moves of a hold: a hold may lag, and each move is a commit that may also move tags.

The first move waits as long, so that a subscriber which runs for a moment moves its hold once, when it ends.
"""


def has_lapsed(hold: Hold | None, position_ms: int | None) -> bool:
    """Return whether a subscriber's hold no longer keeps what the subscriber reads next: the state just before its position.

    Without a position the subscriber begins where its hold was created. A view may begin later: it then shows all rows.
    """
    if position_ms is None:
        return hold is not None and hold.forced_from_ms is not None and hold.keeper is not SubscriberKind.VIEW
    return hold is None or (hold.at_ms is not None and hold.at_ms > position_ms - 1)


@dataclass
class InputHold:
    """The hold of one subscriber.

    Args:
        holds: Commands on the lake's holds.
        new: The hold as it is created; `kept_by` is the subscriber.
        what: Names the subscriber in messages.
        hint: What to do after a lapse.
        avoided_by: How to avoid the next one, as a sentence.
    """

    holds: HoldCommands
    new: NewHold
    what: str
    hint: str
    avoided_by: str = ""
    _moved_at_s: float = field(default_factory=time.monotonic, init=False)

    def find(self) -> Hold | None:
        """Return the current hold; None if it does not exist."""
        return next((hold for hold in self.holds.all() if hold.kept_by == self.new.kept_by), None)

    @contextmanager
    def created_with(self, at_ms: int | None, tables: Mapping[str, str]) -> Iterator[None]:
        """Create a subscription's hold together with what the block declares: either both exist afterwards, or neither.

        Args:
            at_ms: First time to hold; None for the first readable one.
            tables: Object ids of tables that the block declares as well, by full name.

        Raises:
            NotReadable: `at_ms` is before what can be read.
        """
        with self.holds.created(replace(self.new, at_ms=at_ms), tables):
            yield

    def get_or_create(self, at_ms: int) -> Hold:
        """Return the hold, creating it at `at_ms` if it does not exist.

        Raises:
            NotReadable: `at_ms` is before what can be read.
        """
        return self.find() or self.holds.create(replace(self.new, at_ms=at_ms))

    def start_over(self, at_ms: int) -> None:
        """Keep the tables that are read from now on readable, from `at_ms` if the hold is on tables that had their names before.

        Raises:
            DefinitionError: A table does not exist.
        """
        hold = self.find()
        if hold is not None and not self.holds.is_on_present_tables(hold):
            self.drop()
        self.get_or_create(at_ms)

    def keep_max_lag(self) -> None:
        """Give the hold the MAX LAG of the subscriber, if the subscriber states one and the hold has another.

        Raises:
            DefinitionError: It is longer than the setting `max_max_lag_ms` allows.
        """
        hold = self.find() if self.new.max_lag_ms is not None else None
        if hold is not None and hold.kept_by is not None and hold.max_lag_ms != self.new.max_lag_ms:
            self.holds.set_max_lag(hold.kept_by, self.new.max_lag_ms)

    def start(self, as_of_ms: int | None, first_ms: Callable[[], int]) -> int:
        """Return the time at which a subscriber without a position begins; its hold then protects that time.

        Args:
            as_of_ms: The requested time, if only this one will do; None for the time of the hold that was created with the
                subscriber.
            first_ms: Returns the time at which to begin if there is no hold yet.

        Raises:
            SubscriberLapsed: The changes after `as_of_ms` are no longer kept, or MAX LAG moved the hold.
        """
        if as_of_ms is not None:
            self.resume(as_of_ms + 1)
            return as_of_ms
        hold = self.find()
        if hold is not None and has_lapsed(hold, None):
            raise self._lapsed(f"It has read nothing yet. {_moved(hold)}")
        if hold is not None and hold.at_ms is not None:
            return hold.at_ms
        found_ms = first_ms()
        made = self.get_or_create(found_ms)
        if made.at_ms is None:
            self.holds.advance(made.name, found_ms)
        return found_ms

    def resume(self, position_ms: int) -> None:
        """Check that the changes from `position_ms` onward (inclusive) are still kept.

        Raises:
            SubscriberLapsed: The changes are no longer kept.
        """
        hold = self.find()
        if hold is None:
            try:
                self.get_or_create(position_ms - 1)
            except NotReadable as error:
                raise self._lapsed(f"{_read_up_to(position_ms)} Its hold was dropped. {error.detail}") from error
        elif has_lapsed(hold, position_ms):
            raise self._lapsed(f"{_read_up_to(position_ms)} {_moved(hold)}")

    def advance(self, position_ms: int, *, at_once: bool = False) -> None:
        """Advance the hold: everything below `position_ms` (exclusive) has been processed.

        Args:
            position_ms: Reading continues here, which needs the state just before it.
            at_once: Whether the hold moves even if its last move was a moment ago.
        """
        now_s = time.monotonic()
        if not at_once and now_s - self._moved_at_s < _PAUSE_S:
            return
        hold = self.find()
        if hold is None or (hold.at_ms is not None and hold.at_ms >= position_ms - 1):
            return
        self.holds.advance(hold.name, position_ms - 1)
        self._moved_at_s = now_s

    def drop(self) -> None:
        """Drop the hold; does nothing if it does not exist."""
        if self.new.kept_by is not None:
            self.holds.drop_kept_by(self.new.kept_by)

    def _lapsed(self, detail: str) -> SubscriberLapsed:
        hint = f"{self.hint} {self.avoided_by}".strip()
        return SubscriberLapsed(f"{self.what} has fallen behind what is kept", detail=detail, hint=hint)

    def table_replaced(self, name: str) -> SubscriberLapsed:
        """Return the error of a subscriber that cannot read on, because another table has the name of one that it has read."""
        return SubscriberLapsed(
            f'{self.what} has read another table "{name}"',
            code="table-replaced",
            detail=f"The table {name} whose changes it has read was dropped or renamed. What differs between its rows and those "
            "of the table that has the name now is unknown.",
            hint=self.hint,
        )

    def columns_moved(self, changed: str) -> SubscriberLapsed:
        """Return the error of a subscriber that cannot read on, because columns that it has read have changed."""
        return SubscriberLapsed(
            f"{self.what} has read other columns than its tables have now",
            code="subscriber-columns",
            detail=changed,
            hint=self.hint,
        )


def _read_up_to(position_ms: int) -> str:
    return f"It has read up to {position_ms} ({iso(position_ms)} UTC)."


def _moved(hold: Hold) -> str:
    at = "" if hold.at_ms is None else f" is at {hold.at_ms} ({iso(hold.at_ms)} UTC)"
    by = "; MAX LAG moved it there" if hold.forced_from_ms is not None else ""
    return f'Its hold "{hold.name}"{at}{by}.'
