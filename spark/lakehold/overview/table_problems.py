"""Problems of tables: how urgent they are, and what to do about them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from lakehold.ingest.envelope.unfilled_columns import unfilled_detail, unfilled_hint
from lakehold.object_names import full_name_text
from lakehold.overview.facts import CheckFacts, FollowerFacts, HoldFacts, Overview, SourceFacts, TableFacts
from lakehold.overview.table_status import State
from lakehold.overview.words import count, duration, to_second
from lakehold.state.hold_checks import QUERY
from lakehold.state.subscribers import SubscriberKind


class Level(IntEnum):
    """The severity of a problem; the worst is the least."""

    WRONG = 0
    LOOK = 1
    FINE = 2


class Action(StrEnum):
    """An action on a table; the values are the names of commands, except for the page of a check."""

    INGEST = "ingest"
    PUBLISH = "publish"
    MAINTAIN = "maintain"
    CHECK = "check"
    CHECK_PAGE = "check-page"


@dataclass(frozen=True)
class Problem:
    """One problem.

    Attributes:
        level: How bad it is.
        text: What it is, in a few words.
        detail: Sentences.
        hint: What to do.
        action: The command that does what `hint` says, if one does.
        target: The object of the action: a source, a subscription or a table.
    """

    level: Level
    text: str
    detail: str = ""
    hint: str = ""
    action: Action | None = None
    target: str = ""


def problems_of(table: TableFacts) -> tuple[Problem, ...]:
    """Return the problems of one table, the worst first."""
    return tuple(sorted(_found(table), key=lambda problem: problem.level))


def problem_of_source(source: SourceFacts) -> Problem | None:
    """Return the problem of a source whose batch was begun and is no longer run by any process."""
    if source.interrupted_ms is None:
        return None
    return Problem(
        Level.LOOK,
        f"the batch of {to_second(source.interrupted_ms)} was begun and is not committed",
        "No process runs it: the one that began it is gone.",
        "Ingest again: that finishes the batch with the same offsets and timestamp.",
        Action.INGEST,
        source.name,
    )


def level_of(problems: tuple[Problem, ...]) -> Level:
    """Return the level of the worst problem."""
    return min((problem.level for problem in problems), default=Level.FINE)


def urgent_first(overview: Overview) -> list[tuple[TableFacts, tuple[Problem, ...]]]:
    """Return the tables with their problems, the most urgent first.

    The order is by level, then stopped tables, then the number of problems, then the name.
    """
    found = [(table, problems_of(table)) for table in overview.tables]
    return sorted(found, key=lambda e: (level_of(e[1]), e[0].state is not State.STOPPED, -len(e[1]), e[0].name))


def _found(table: TableFacts) -> Iterator[Problem]:
    if table.error is not None and table.source is None:
        text = f"stopped: {table.error.message}" if table.state is State.STOPPED else table.error.message
        yield Problem(Level.WRONG, text, table.error.detail, table.error.hint)
    elif table.error is not None:
        error, source = table.error, table.source or ""
        hint = error.hint or "Remove the cause and ingest again."
        yield Problem(Level.WRONG, f"stopped: {error.message}", error.detail, hint, Action.INGEST, source)
    elif table.waiting is not None:
        yield Problem(
            Level.LOOK,
            f"waits for {table.waiting.what} since {to_second(table.waiting.since_ms)} UTC",
            table.waiting.detail,
            "Check that the connector runs. The table contains everything that was committed before the transaction.",
            Action.INGEST,
            table.source or "",
        )
    yield from (_failed(check, table.name) for check in table.checks if not check.success)
    for follower in table.followers:
        yield from _of_follower(follower)
        if follower.hold is not None and not follower.is_behind:
            yield from _of_hold(follower.hold, table.name)
    for hold in table.holds:
        yield from _of_hold(hold, table.name)
    if table.unfilled:
        yield Problem(Level.LOOK, unfilled_detail(table.unfilled), hint=unfilled_hint(table.name))
    if table.key_violations:
        yield Problem(
            Level.LOOK,
            f"{count(table.key_violations, 'key')} with several rows",
            "The view keeps all of them, because it has ON KEY VIOLATION = 'keep'.",
            f"Group the rows of {table.name} by its key to see which, and correct the tables that it reads.",
        )
    if table.open_errors:
        yield Problem(
            Level.LOOK,
            f"{count(table.open_errors, 'message')} in error",
            hint="See the rows of mz_catalog.mz_source_errors whose healed_at is null. Correct the producer: the next good "
            "message of a key heals it.",
        )


def _failed(check: CheckFacts, table: str) -> Problem:
    if check.is_comparison:
        return Problem(
            Level.WRONG,
            f"differs from its {check.compared_with} at {to_second(check.at_ms)} UTC",
            "; ".join(check.failures),
            f"DROP MATERIALIZED VIEW {full_name_text(table)} and create it again: then it is computed again."
            if check.compared_with == QUERY
            else f"Remove the cause, and compare again: lakehold verify {table}",
        )
    where = "" if check.hold is None else f' at the time of hold "{check.hold}"'
    text = f"{len(check.failures):,} of {count(check.evaluated, 'expectation')} not met{where}"
    return Problem(
        Level.WRONG,
        f"check failed: {text}",
        f"{'; '.join(check.failures)}.",
        "Correct the data upstream or the suite, and check again.",
        Action.CHECK,
        table,
    )


def _of_follower(follower: FollowerFacts) -> Iterator[Problem]:
    what = f'{follower.kind.spoken} "{follower.name}"'
    action = Action.PUBLISH if follower.kind is not SubscriberKind.CLIENT else None
    if follower.is_lapsed and follower.starts_over:
        yield Problem(
            Level.LOOK,
            f"{what} has fallen behind what is kept",
            "It starts over from a snapshot the next time it is published.",
            "Publish it more often, or set a longer MAX LAG.",
            action,
            follower.name,
        )
    elif follower.is_lapsed:
        yield Problem(
            Level.WRONG,
            f"{what} has fallen behind what is kept",
            "A part of the changes since it last ran is gone.",
            "Drop it and create it again; WITH (ON LAPSE = 'resnapshot') lets it start over from a snapshot."
            if follower.kind is SubscriberKind.VIEW
            else "Create it again, or let it start over from a snapshot (ON LAPSE = 'resnapshot').",
        )
    elif follower.is_behind and follower.lag_ms is not None and follower.hold is not None:
        allowed = duration(follower.hold.max_lag_ms)
        run = "Publish it." if action is not None else "Start the program that follows."
        yield Problem(
            Level.LOOK,
            f"{what} is {duration(follower.lag_ms)} behind",
            f"Its MAX LAG is {allowed}: changes that it has not taken by then are dropped.",
            run,
            action,
            follower.name,
        )


def _of_hold(hold: HoldFacts, table: str) -> Iterator[Problem]:
    if hold.is_exceeded:
        yield Problem(
            Level.LOOK,
            f'hold "{hold.name}" is {duration(hold.lag_ms)} behind, MAX LAG is {duration(hold.max_lag_ms)}',
            "The next maintenance moves it; the history before its new time can then no longer be read.",
            f"If that history is still needed, read it now; then ALTER HOLD {hold.name} ADVANCE.",
            Action.MAINTAIN,
            table,
        )
    elif hold.forced_from_ms is not None:
        yield Problem(
            Level.LOOK,
            f'hold "{hold.name}" was moved by its MAX LAG of {duration(hold.max_lag_ms)}',
            f"Before, it was at {to_second(hold.forced_from_ms)} UTC, and no one has advanced it since.",
            f"Ask its readers whether they miss that history; then ALTER HOLD {hold.name} ADVANCE.",
        )
