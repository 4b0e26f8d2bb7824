"""Asks for the privileges of the program's role, as roles are now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakehold.holds import privileges
from lakehold.state.holds import Hold
from lakehold.state.roles import Grant, Role
from lakehold.state.store import Store


@dataclass(frozen=True)
class Guard:
    """What stands before holds and subscriptions.

    Args:
        store: The lake's roles.
        role: The setting `role`.
    """

    store: Store[Role]
    role: str | None = None

    def check(self, what: str, needed: Iterable[Grant]) -> Role | None:
        """The role that may do `what`, which takes `needed`; None: there are no roles.

        Raises:
            PermissionDenied: It may not.
        """
        return privileges.check(self.store.values(), self.role, what, needed)

    def check_change(self, what: str, hold: Hold) -> None:
        """The role must be allowed to do `what` to `hold`.

        Raises:
            PermissionDenied: It is not.
        """
        privileges.check_change(self.store.values(), self.role, what, hold)
