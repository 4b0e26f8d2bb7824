"""Rules of holds: holds and windows -> holds. Pure; each refusal reports what is readable and at which times holds are.

A hold begins at a time at which its tables can be read. It may advance to any later time,
but go back only as far as retention or another hold keeps its tables readable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from lakehold.definitions import name_of
from lakehold.errors import DefinitionError, NotReadable
from lakehold.model.lake_definitions import Definitions
from lakehold.model.readers import Stop
from lakehold.nearest import did_you_mean
from lakehold.object_names import full_name_text, object_text
from lakehold.state.holds import HeldTable, Hold, Holds
from lakehold.state.subscribers import SubscriberKind
from lakehold.timeline.reader_lag import Changes, lag_ms, reached_ms
from lakehold.timeline.stops import first_in_sync
from lakehold.times import iso, now_ms

ABANDONED_MS = 600_000
"""The age, in milliseconds, at which a hold on undeclared tables, or of an undeclared subscription, is *abandoned*.

A statement stores a hold before it commits the definitions that the hold needs. Until this age their commit may follow."""


@dataclass(frozen=True)
class HeldWindow:
    """The readable window of a table, and which part of it retention keeps.

    Attributes:
        table: The table.
        since_ms: Read frontier, inclusive: the first time that can still be read, for whatever reason it is kept.
        upper_ms: Write frontier, exclusive: the first time that is not readable yet.
        retained_ms: The first time that retention alone keeps readable, inclusive; never before `since_ms`.
        changes: Its changes that are kept.
        stops: Times at which the table was stopped and cannot be read (`lakehold.timeline.stops`). A hold moves to their end.
    """

    table: HeldTable
    since_ms: int
    upper_ms: int
    retained_ms: int
    changes: Changes = field(default=Changes(), repr=False)
    stops: tuple[Stop, ...] = ()

    def __str__(self) -> str:
        return f'"{self.table.full_name}" from {self.since_ms} ({iso(self.since_ms)} UTC) on'


HeldWindows = Mapping[str, HeldWindow]
"""By full name; a table that is not readable yet has none."""


def existing(holds: Holds, definitions: Definitions) -> Holds:
    """Select the holds that exist: a hold whose fed table, view or subscription is not declared (any more, or yet) does not."""
    derived = definitions.all_derived
    return tuple(
        hold
        for hold in holds
        if all(_is_declared(table, definitions) for table in hold.tables if table.is_fed)
        and (hold.keeper in (None, SubscriberKind.CLIENT) or hold.kept_by in derived)
    )


def _is_declared(table: HeldTable, definitions: Definitions) -> bool:
    entry = definitions.own_table(table.full_name)
    return entry is not None and entry.object_id == table.object_id


def protecting(holds: Holds, definitions: Definitions) -> Holds:
    """Select the holds that protect history: those that exist, and those that another process may be creating now.

    The others are abandoned: their process died, or their table or subscription was dropped.
    """
    there, oldest_ms = {hold.hold_id for hold in existing(holds, definitions)}, now_ms() - ABANDONED_MS
    return tuple(hold for hold in holds if hold.hold_id in there or hold.created_at_ms >= oldest_ms)


def keeper_name(hold: Hold, definitions: Definitions) -> str | None:
    """Return the name of the subscription, view or client that advances `hold`; None if there is none."""
    if hold.keeper in (None, SubscriberKind.CLIENT):
        return hold.kept_by
    entry = definitions.all_derived.get(hold.kept_by or "")
    return name_of(entry.definition) if entry is not None else hold.kept_by


def check_not_kept(hold: Hold, verb: str, definitions: Definitions) -> None:
    """Refuse to move or drop a subscriber's hold by hand: the subscriber would lose changes that it has not taken yet.

    Raises:
        DefinitionError: A subscription, view or client advances `hold`.
    """
    name = keeper_name(hold, definitions)
    if name is None:
        return
    who, ends = f'durable client "{name}"', "its forget()"
    if hold.keeper is SubscriberKind.SUBSCRIPTION:
        who, ends = f'subscription "{name}"', f"DROP SUBSCRIPTION {object_text(name)}"
    elif hold.keeper is SubscriberKind.VIEW:
        who, ends = f'materialized view "{name}"', f"DROP MATERIALIZED VIEW {full_name_text(name)}"
    raise DefinitionError(
        f'hold "{hold.name}" cannot be {verb} by hand',
        code="hold-kept",
        detail=f"It belongs to {who}, which advances it when it has processed changes.",
        hint=f"Run {who}, and the hold moves; {ends} drops the hold, too.",
    )


def find(holds: Holds, name: str) -> Hold:
    """Return the hold called `name`, with or without its namespace.

    Raises:
        DefinitionError: No hold has this name.
    """
    for hold in holds:
        if name in (hold.name, hold.full_name):
            return hold
    known = ", ".join(f'"{hold.full_name}"' for hold in holds) or "none"
    raise DefinitionError(
        f'hold "{name}" does not exist',
        code="hold-missing",
        detail=f"Known: {known}.",
        hint=did_you_mean(
            name, {each for hold in holds for each in (hold.name, hold.full_name)}, "SHOW HOLDS lists them."
        ),
    )


def free_name(holds: Holds, wanted: str) -> str:
    """Return `wanted`, followed by a number if a hold has that name, as PostgreSQL names objects without a given name."""
    names = {hold.name for hold in holds}
    if wanted not in names:
        return wanted
    return next(name for name in (f"{wanted}{number}" for number in count(1)) if name not in names)


def created(holds: Holds, hold: Hold, windows: HeldWindows) -> Holds:
    """Add `hold` to `holds`; without a time it gets the first one at which all of its tables are readable.

    Raises:
        DefinitionError: The name is taken.
        NotReadable: A table cannot be read at the time of the hold.
    """
    _check_name_is_free(holds, hold.name)
    at_ms = hold.at_ms
    if at_ms is None:
        return (*holds, replace(hold, at_ms=first_time(hold, windows)))
    for name in (table.full_name for table in hold.tables if table.full_name not in windows):
        raise NotReadable(
            f'hold "{hold.name}" cannot be at {at_ms}',
            detail=f'"{name}" is not readable yet.',
            hint="Leave out AT: the hold then begins when all its tables are readable.",
        )
    failing = [window for window in _of(hold, windows) if at_ms < window.since_ms]
    if failing:
        raise NotReadable(
            f'hold "{hold.name}" cannot be at {at_ms}',
            detail=f"Readable: {'; '.join(map(str, _of(hold, windows)))}.{_other_holds(holds, hold, windows)}",
            hint=f"Choose {max(window.since_ms for window in failing)} or later.",
        )
    return (*holds, hold)


def advanced(holds: Holds, name: str, to_ms: int | None, windows: HeldWindows) -> Holds:
    """Move the hold called `name` to `to_ms`; by default to the first time that retention alone keeps readable, never back.

    Raises:
        NotReadable: `to_ms` is an earlier time, and neither retention nor another hold keeps the tables readable there.
    """
    hold = find(holds, name)
    if to_ms is None:
        _check_readable(hold, windows)
        retained_ms = [window.retained_ms for window in _of(hold, windows)]
        to_ms = _unstopped_ms(hold, max(retained_ms + ([] if hold.at_ms is None else [hold.at_ms])), windows)
    elif hold.at_ms is None or to_ms < hold.at_ms:
        _check_readable(hold, windows)
        _check_way_back(holds, hold, to_ms, windows)
    return _with(holds, replace(hold, at_ms=to_ms, forced_from_ms=None))


def renamed(holds: Holds, name: str, new_name: str) -> Holds:
    """Change the name of the hold called `name`."""
    hold = find(holds, name)
    if new_name != hold.name:
        _check_name_is_free(holds, new_name)
    return _with(holds, replace(hold, name=new_name))


def dropped(holds: Holds, name: str) -> Holds:
    """Drop the hold called `name`."""
    gone = find(holds, name)
    return tuple(hold for hold in holds if hold.hold_id != gone.hold_id)


def begin_waiting(holds: Holds, windows: HeldWindows) -> Holds:
    """Set the time of each hold that waits for its tables, once all of them are readable."""
    return tuple(replace(hold, at_ms=first_time(hold, windows)) if hold.at_ms is None else hold for hold in holds)


def forced(holds: Holds, windows: HeldWindows) -> Holds:
    """Move holds that lag more than MAX LAG to that lag, and holds at a time at which a table was stopped to its end.

    MAX LAG counts to the clock at most: a table may be ahead of it, after a batch of a machine whose clock was wrong.

    A hold can be at such a time if the time was still in the future when the hold was created.
    """
    return tuple(_forced(hold, windows) for hold in holds)


def behind_ms(hold: Hold, windows: HeldWindows) -> int:
    """Compute how far `hold` lags its tables; 0 if nothing of them changed since, or if it has not begun."""
    return lag_ms(hold.at_ms, _of(hold, windows), now_ms()) if hold.at_ms is not None else 0


def needed_from_ms(hold: Hold, since_ms: int, upper_ms: int) -> int:
    """Compute from when on `hold` needs a table that is readable on `[since_ms, upper_ms)`, inclusive.

    While it waits for another table, it needs what MAX LAG allows: it begins when that table becomes readable, later than now.
    """
    return max(since_ms, reached_ms(upper_ms, now_ms()) - hold.max_lag_ms) if hold.at_ms is None else hold.at_ms


def first_time(hold: Hold, windows: HeldWindows) -> int | None:
    """Find the first time at which all tables of `hold` are readable: their latest `since`; None while one is not."""
    found = _of(hold, windows)
    return (
        _unstopped_ms(hold, max(window.since_ms for window in found), windows)
        if len(found) == len(hold.tables)
        else None
    )


def _forced(hold: Hold, windows: HeldWindows) -> Hold:
    # A table that is gone, was replaced or cannot be read does not keep the history of the others for ever.
    if hold.at_ms is None or not _of(hold, windows):
        return hold
    if behind_ms(hold, windows) <= hold.max_lag_ms:
        return replace(hold, at_ms=_unstopped_ms(hold, hold.at_ms, windows))
    least_ms = reached_ms(min(window.upper_ms for window in _of(hold, windows)), now_ms()) - hold.max_lag_ms
    return replace(hold, at_ms=_unstopped_ms(hold, least_ms, windows), forced_from_ms=hold.at_ms)


def _unstopped_ms(hold: Hold, at_ms: int, windows: HeldWindows) -> int:
    """Find the first time from `at_ms` onward at which none of the tables of `hold` was stopped."""
    return first_in_sync((stop for window in _of(hold, windows) for stop in window.stops), at_ms)


def _check_way_back(holds: Holds, hold: Hold, to_ms: int, windows: HeldWindows) -> None:
    for window in _of(hold, windows):
        name = window.table.full_name
        others = [other.at_ms for other in _others_on(holds, hold, name) if other.at_ms is not None]
        kept_from_ms = max(window.since_ms, min([window.retained_ms, *others]))
        if to_ms < kept_from_ms:
            raise NotReadable(
                f'hold "{hold.name}" cannot go back to {to_ms}',
                detail=f'Retention keeps "{name}" from {window.retained_ms} ({iso(window.retained_ms)} UTC) on.'
                + _other_holds(holds, hold, windows),
                hint=f"Choose {kept_from_ms} or later.",
            )


def _check_readable(hold: Hold, windows: HeldWindows) -> None:
    for name in (table.full_name for table in hold.tables if table.full_name not in windows):
        raise NotReadable(
            f'hold "{hold.name}" cannot be advanced yet',
            detail=f'"{name}" is not readable yet.',
            hint="The hold begins when all its tables have rows.",
        )


def _check_name_is_free(holds: Holds, name: str) -> None:
    for hold in holds:
        if hold.name == name:
            raise DefinitionError(
                f'hold "{name}" already exists',
                code="hold-exists",
                detail=f'"{hold.full_name}" is on {tables_text(hold)}. Names of holds are unique in a lake.',
                hint="Choose another name, or drop it first.",
            )


def tables_text(hold: Hold) -> str:
    """List the tables of `hold` for a sentence."""
    return ", ".join(f'"{table.full_name}"' for table in hold.tables)


def _other_holds(holds: Holds, hold: Hold, windows: HeldWindows) -> str:
    """Write a sentence for each table of `hold` on which there are other holds: their names and times."""
    sentences = []
    for window in _of(hold, windows):
        others = _others_on(holds, hold, window.table.full_name)
        if others:
            times = ", ".join(f'"{other.name}" at {other.at_ms}' for other in others)
            sentences.append(f' Others hold "{window.table.full_name}": {times}.')
    return "".join(sentences)


def _others_on(holds: Holds, hold: Hold, full_name: str) -> Sequence[Hold]:
    found = [other for other in holds if other.hold_id != hold.hold_id and other.is_on(full_name)]
    return sorted((other for other in found if other.at_ms is not None), key=lambda other: other.at_ms or 0)


def _of(hold: Hold, windows: HeldWindows) -> list[HeldWindow]:
    return [windows[table.full_name] for table in hold.tables if table.full_name in windows]


def _with(holds: Holds, changed: Hold) -> Holds:
    return tuple(changed if hold.hold_id == changed.hold_id else hold for hold in holds)
