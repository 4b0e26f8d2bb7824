"""Checks of the privileges that the program's role (the setting `role`) has now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakehold.holds import privileges
from lakehold.state.holds import Hold
from lakehold.state.roles import Grant, Role
from lakehold.state.store import Store


@dataclass(frozen=True)
class Guard:
    """The privilege check before changes of holds and subscriptions.

    Args:
        store: The lake's roles.
        role: Name of the role that this program acts as; None: it names none, which suffices while the lake has no roles.
    """

    store: Store[Role]
    role: str | None = None

    def check(self, what: str, needed: Iterable[Grant]) -> Role | None:
        """Check that the program's role has `needed`, and return the role; None if the lake has no roles.

        Args:
            what: The action, for the error: "create hold …".
            needed: The privileges that the action needs.

        Raises:
            PermissionDenied: The role lacks a privilege.
        """
        return privileges.check(self.store.values(), self.role, what, needed)

    def check_change(self, what: str, hold: Hold) -> None:
        """Check that the program's role may change `hold`; `what` names the action in the error.

        Raises:
            PermissionDenied: The role may not.
        """
        privileges.check_change(self.store.values(), self.role, what, hold)
