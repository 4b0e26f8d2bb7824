"""Privileges of roles on holds and subscriptions: roles -> permission, or an error that names what is missing. Pure.

While a lake has no role, everything is allowed. Privileges guard against mistakes of colleagues, not against attackers: a
program names its own role, and everybody who can write the catalog's tables can change roles.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakehold.errors import PermissionDenied
from lakehold.nearest import did_you_mean
from lakehold.object_names import full_name_text, object_text
from lakehold.state.holds import Hold
from lakehold.state.roles import Grant, GrantedOn, Privilege, Role, Roles


def selecting(tables: Iterable[str]) -> tuple[Grant, ...]:
    """List the privileges needed to read `tables` for a hold or a subscription."""
    return tuple(Grant(Privilege.SELECT, GrantedOn.TABLE, name) for name in dict.fromkeys(tables))


def creating_in(namespace: str) -> tuple[Grant, ...]:
    """List the privileges needed to create an object in `namespace`."""
    return (Grant(Privilege.CREATE, GrantedOn.SCHEMA, namespace),)


def acting_role(roles: Roles, name: str | None, what: str) -> Role | None:
    """Return the role called `name`; None if the lake has no roles and everything is allowed.

    `what` names the action in the error: "create hold …".

    Raises:
        PermissionDenied: The lake has roles, but none of this name.
    """
    if not roles:
        return None
    found = next((role for role in roles if role.name == name), None)
    if found is None:
        known = ", ".join(f'"{role.name}"' for role in roles)
        raise PermissionDenied(
            f"a role is needed to {what}" if name is None else f'role "{name}" does not exist',
            code="role-missing",
            detail=f"This lake has roles, so a program needs one to {what}. Known: {known}.",
            hint=did_you_mean(
                name or "", (role.name for role in roles), "Set the setting role (LAKEHOLD_ROLE) to one of them."
            ),
        )
    return found


def has(role: Role, needed: Grant) -> bool:
    """Return whether `role` has `needed`: by its own grants, by a grant on the table's schema, or as a superuser."""
    if role.is_superuser or needed in role.grants:
        return True
    of_all_tables = Grant(needed.privilege, GrantedOn.SCHEMA, needed.object_name.rpartition(".")[0])
    return needed.object_type is GrantedOn.TABLE and of_all_tables in role.grants


def check(roles: Roles, name: str | None, what: str, needed: Iterable[Grant]) -> Role | None:
    """Check that the role called `name` has `needed`, and return it; None if the lake has no roles.

    Raises:
        PermissionDenied: The role lacks a privilege, or does not exist.
    """
    role = acting_role(roles, name, what)
    missing = tuple(grant for grant in needed if not has(role, grant)) if role is not None else ()
    if role is not None and missing:
        detail = f"It lacks {', '.join(map(str, missing))}."
        raise _denied(roles, role, what, detail, "; ".join(_statement(grant, role) for grant in missing))
    return role


def check_change(roles: Roles, name: str | None, what: str, hold: Hold) -> None:
    """Check that the role called `name` may change `hold`: as its owner, or by CREATE on its namespace.

    Raises:
        PermissionDenied: The role is not the owner and lacks CREATE.
    """
    role = acting_role(roles, name, what)
    (create,) = creating_in(hold.namespace)
    if role is None or role.role_id == hold.owner or has(role, create):
        return
    owner = next((f'role "{other.name}"' for other in roles if other.role_id == hold.owner), "no role that exists now")
    detail = f'Hold "{hold.full_name}" was made by {owner}, and it lacks {create}.'
    raise _denied(roles, role, what, detail, _statement(create, role))


def check_superuser(roles: Roles, name: str | None, what: str) -> None:
    """Check that the role called `name` may manage roles: as a superuser, or because the lake has no roles yet.

    Raises:
        PermissionDenied: The role is not a superuser.
    """
    role = acting_role(roles, name, what)
    if role is not None and not role.is_superuser:
        raise PermissionDenied(
            f'role "{role.name}" may not {what}',
            detail="It is not a superuser.",
            hint=f"Set the setting role (LAKEHOLD_ROLE) to one: {_superusers(roles)}.",
        )


def _denied(roles: Roles, role: Role, what: str, detail: str, statements: str) -> PermissionDenied:
    return PermissionDenied(
        f'role "{role.name}" may not {what}',
        detail=detail,
        hint=f"A superuser ({_superusers(roles)}) can allow it: {statements}",
    )


def _statement(grant: Grant, role: Role) -> str:
    on = f"{grant.object_type.upper()} {full_name_text(grant.object_name)}"
    return f"GRANT {grant.privilege} ON {on} TO {object_text(role.name)}"


def _superusers(roles: Roles) -> str:
    return ", ".join(role.name for role in roles if role.is_superuser)
