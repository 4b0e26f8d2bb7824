"""Advances of holds: concurrent calls share few commits, and each caller gets the outcome of its own advance.

A hold keeps tables readable from a time on. An advance moves that time, so that older history may expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehold.errors import LakeholdError, NotReadable
from lakehold.holds import rules
from lakehold.holds.group_commit import GroupCommit
from lakehold.holds.held_windows import HeldWindowReader
from lakehold.holds.hold_changes import HoldChanges
from lakehold.holds.rules import HeldWindows
from lakehold.state.holds import HeldTable, Hold, Holds


@dataclass(frozen=True)
class Advance:
    """One call of `ALTER HOLD name ADVANCE [TO to_ms]`; None: to the first time that retention alone keeps readable."""

    name: str
    to_ms: int | None


class Advances:
    """The queue of one process's advances, which share commits.

    Args:
        changes: Changes the holds.
        windows: Reports at which times their tables can be read.
    """

    def __init__(self, changes: HoldChanges, windows: HeldWindowReader) -> None:
        self._changes = changes
        self._windows = windows
        self._together = GroupCommit(self._advance)

    def submit(self, advance: Advance) -> Hold:
        """Advance one hold and return it as it is afterwards.

        Raises:
            DefinitionError: The hold does not exist.
            NotReadable: The hold cannot go back so far.
        """
        return self._together.submit(advance)

    def _advance(self, advances: Sequence[Advance]) -> list[Hold | Exception]:
        windows = self._windows_for(advances)
        outcomes: list[Hold | Exception] = []
        began: Holds = ()

        def advanced(holds: Holds) -> Holds:
            nonlocal began
            began = holds
            outcomes.clear()
            for advance in advances:
                try:
                    holds = rules.advanced(holds, advance.name, advance.to_ms, windows)
                    outcomes.append(rules.find(holds, advance.name))
                except LakeholdError as error:
                    outcomes.append(error)
            return holds

        holds = self._changes.change(advanced, windows, {advance.name for advance in advances})
        ended = {hold.hold_id: hold for hold in holds}
        for before in began:
            after = ended[before.hold_id]
            if before.at_ms is not None and after.at_ms is not None and after.at_ms < before.at_ms:
                self._confirm_way_back(before, after, outcomes)
        return outcomes

    def _confirm_way_back(self, before: Hold, after: Hold, outcomes: list[Hold | Exception]) -> None:
        """Undo an advance to an earlier time if another tool expired a snapshot of it before the tags were put.

        The hold returns to its time in `before`, and the callers that moved it get the error as their outcome.
        """
        try:
            self._windows.check_kept(after)
        except NotReadable as error:
            self._changes.change(lambda holds: tuple(before if hold == after else hold for hold in holds), {})
            for place, outcome in enumerate(outcomes):
                if isinstance(outcome, Hold) and outcome.hold_id == after.hold_id:
                    outcomes[place] = error

    def _windows_for(self, advances: Sequence[Advance]) -> HeldWindows:
        """Read the windows that `advances` need: only holds that have not begun or do not simply go forward need them."""
        holds = self._changes.all()
        by_name = {name: hold for hold in holds for name in (hold.name, hold.full_name)}
        wanted: list[HeldTable] = [table for hold in holds if hold.at_ms is None for table in hold.tables]
        back_to_ms: list[int] = []
        for advance in advances:
            hold = by_name.get(advance.name)
            if hold is None or hold.at_ms is None or (advance.to_ms is not None and advance.to_ms >= hold.at_ms):
                continue
            wanted += hold.tables
            if advance.to_ms is not None:
                back_to_ms.append(advance.to_ms)
        return self._windows.read(wanted, back_to_ms=min(back_to_ms, default=None))
