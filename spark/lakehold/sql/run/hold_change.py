"""Statements that rename and drop holds in one commit; lakehold plans them again if another writer commits first.

A hold keeps tables readable from a time on.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakehold.holds import rules
from lakehold.holds.guard import Guard
from lakehold.model.lake_definitions import DefinitionReader
from lakehold.sql.plan.statement_effects import DropHolds, Effect, NameHold, Notice
from lakehold.sql.plan.statement_plan import plan
from lakehold.sql.run.definition_change import locating_errors
from lakehold.sql.run.roles import check_privileges
from lakehold.sql.statements import ParsedStatement
from lakehold.state.holds import Holds


class HoldChange:
    """The change of the holds by the statements of a transaction, in their order.

    Args:
        statements: ALTER HOLD … RENAME TO and DROP HOLD.
        definitions: The definitions, with the subscriptions whose holds these statements must not drop.
        guard: Checks the privileges of the program's role.
    """

    def __init__(self, statements: Sequence[ParsedStatement], definitions: DefinitionReader, guard: Guard) -> None:
        self._statements = statements
        self._definitions = definitions
        self._guard = guard
        self.notices: list[str] = []
        """Notices for the person, of the last try."""

    def apply(self, current: Holds) -> Holds:
        """Apply the statements, one after the other, to the holds `current`, and return the result.

        Raises:
            DefinitionError: A hold does not exist or is a subscriber's, or its new name is taken.
            PermissionDenied: The program's role may not change a hold.
        """
        self.notices = []
        definitions = self._definitions.definitions()
        for parsed in self._statements:
            with locating_errors(parsed, alone=len(self._statements) == 1):
                planned = plan(parsed, definitions, current)
                check_privileges(planned, self._guard)
                for effect in planned.effects:
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
