"""Commands on roles, which SQL statements call.

A lake that has roles always has a superuser: the first role becomes one, and the last superuser can only be dropped
after all other roles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from lakehold.errors import DefinitionError
from lakehold.holds import privileges
from lakehold.holds.guard import Guard
from lakehold.nearest import did_you_mean
from lakehold.state.roles import Grant, Role, Roles
from lakehold.times import now_ms


@dataclass(frozen=True)
class RoleCommands:
    """The commands on the roles of one lake. Only superusers change roles; without roles, anybody may create one.

    Args:
        guard: Has the store of the roles, and the role of this process (setting `role`).
    """

    guard: Guard

    def all(self) -> Roles:
        """Return the roles that exist now, in order of creation."""
        return self.guard.store.values()

    def role(self, name: str) -> Role:
        """Return the role called `name`.

        Raises:
            DefinitionError: The role does not exist.
        """
        return _find(self.all(), name)

    def create(self, name: str, *, is_superuser: bool = False, if_not_exists: bool = False) -> Role:
        """Create a role; the first one becomes a superuser. With `if_not_exists` a role of this name stays as it is.

        Raises:
            DefinitionError: The name is taken.
            PermissionDenied: The role of this process is not a superuser.
        """
        made = Role(uuid4().hex, name, is_superuser, (), now_ms())

        def created(roles: Roles) -> Roles:
            if any(role.name == name for role in roles):
                if if_not_exists:
                    return roles
                raise DefinitionError(
                    f'role "{name}" already exists',
                    code="role-exists",
                    hint="SHOW ROLES lists them. Choose another name.",
                )
            self._check_superuser(roles, f'create role "{name}"')
            return (*roles, replace(made, is_superuser=is_superuser or not roles))

        return _find(self.guard.store.change(created), name)

    def drop(self, name: str) -> None:
        """Drop a role and its grants. Its holds stay without an owner: roles with CREATE can change and drop them.

        Raises:
            DefinitionError: The role does not exist, or is the last superuser while there are other roles.
            PermissionDenied: The role of this process is not a superuser.
        """

        # A function of the roles, because the store calls it again if another process changed them first.
        def dropped(roles: Roles) -> Roles:
            gone = _find(roles, name)
            self._check_superuser(roles, f'drop role "{name}"')
            left = tuple(role for role in roles if role != gone)
            if left and not any(role.is_superuser for role in left):
                raise DefinitionError(
                    f'role "{name}" is the last superuser',
                    code="last-superuser",
                    detail="Nobody could manage the other roles any more.",
                    hint="Create another superuser first, or drop the other roles before this one: without roles everything is "
                    "allowed.",
                )
            return left

        self.guard.store.change(dropped)

    def grant(self, grants: Sequence[Grant], names: Sequence[str]) -> None:
        """Grant `grants` to the roles called `names`, in addition to what they have.

        Raises:
            DefinitionError: A role does not exist.
            PermissionDenied: The role of this process is not a superuser.
        """
        self._regrant(names, "grant privileges", lambda held: tuple(dict.fromkeys((*held, *grants))))

    def revoke(self, grants: Sequence[Grant], names: Sequence[str]) -> None:
        """Revoke those of `grants` that the roles called `names` have. Raises as `grant` does."""
        self._regrant(names, "revoke privileges", lambda held: tuple(grant for grant in held if grant not in grants))

    def _regrant(
        self, names: Sequence[str], what: str, apply: Callable[[tuple[Grant, ...]], tuple[Grant, ...]]
    ) -> None:
        def regranted(roles: Roles) -> Roles:
            ids = {_find(roles, name).role_id for name in names}
            self._check_superuser(roles, what)
            return tuple(replace(role, grants=apply(role.grants)) if role.role_id in ids else role for role in roles)

        self.guard.store.change(regranted)

    def _check_superuser(self, roles: Roles, what: str) -> None:
        privileges.check_superuser(roles, self.guard.role, what)


def _find(roles: Roles, name: str) -> Role:
    for role in roles:
        if role.name == name:
            return role
    known = ", ".join(f'"{role.name}"' for role in roles) or "none"
    raise DefinitionError(
        f'role "{name}" does not exist',
        code="role-missing",
        detail=f"Known: {known}.",
        hint=did_you_mean(name, (role.name for role in roles), "SHOW ROLES lists them."),
    )
