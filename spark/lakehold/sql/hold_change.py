"""Statements that rename and drop holds in one commit: planned on those it commits to, again if another came first."""

from __future__ import annotations

from collections.abc import Sequence

from lakehold.holds import rules
from lakehold.holds.guard import Guard
from lakehold.model.definitions import DefinitionReader
from lakehold.sql.definition_change import placed
from lakehold.sql.effects import DropHolds, Effect, NameHold, Notice
from lakehold.sql.plan import plan
from lakehold.sql.run_roles import check_privileges
from lakehold.sql.statements import ParsedStatement
from lakehold.state.holds import Holds


class HoldChange:
    """What the statements of a transaction do to the holds, one after the other.

    Args:
        statements: ALTER HOLD … RENAME TO and DROP HOLD.
        definitions: Which subscriptions there are, whose holds are theirs.
        guard: Asks for the privileges of whoever runs them.
    """

    def __init__(self, statements: Sequence[ParsedStatement], definitions: DefinitionReader, guard: Guard) -> None:
        self._statements = statements
        self._definitions = definitions
        self._guard = guard
        self.notices: list[str] = []
        """What a person should know, as of the last try."""

    def apply(self, current: Holds) -> Holds:
        """The holds behind the statements; each finds them as those before it left them.

        Raises:
            DefinitionError: A hold is missing, a subscriber's, or its new name taken.
            PermissionDenied: The program's role may not change a hold.
        """
        self.notices = []
        definitions = self._definitions.definitions()
        for parsed in self._statements:
            with placed(parsed, alone=len(self._statements) == 1):
                decided = plan(parsed, definitions, current)
                check_privileges(decided, self._guard)
                for effect in decided.effects:
                    current = self._changed(current, effect)
        return current

    def _changed(self, holds: Holds, effect: Effect) -> Holds:
        match effect:
            case NameHold(hold, new_name):
                return rules.renamed(holds, hold.full_name, new_name)
            case DropHolds(gone):
                return tuple(hold for hold in holds if hold not in gone)
            case Notice(text):
                self.notices.append(text)
        return holds
