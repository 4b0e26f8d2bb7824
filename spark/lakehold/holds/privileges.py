"""What a role may do about holds and subscriptions: roles -> yes, or an error that says what is missing. Pure.

As long as there is no role everything is allowed. It is a guard for colleagues, not against attackers: a program says itself
which role it has, and whoever can write the catalog's tables can change them.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakehold.definitions import full_name_text, object_text
from lakehold.errors import PermissionDenied
from lakehold.state.holds import Hold
from lakehold.state.roles import Grant, GrantedOn, Privilege, Role, Roles


def selecting(tables: Iterable[str]) -> tuple[Grant, ...]:
    """What reading `tables` for a hold or a subscription takes."""
    return tuple(Grant(Privilege.SELECT, GrantedOn.TABLE, name) for name in dict.fromkeys(tables))


def creating_in(namespace: str) -> tuple[Grant, ...]:
    """What making something in `namespace` takes."""
    return (Grant(Privilege.CREATE, GrantedOn.SCHEMA, namespace),)


def acting(roles: Roles, name: str | None, what: str) -> Role | None:
    """The role called `name`, which is about to do `what` ("create hold …"); None: there are no roles, and all is allowed.

    Raises:
        PermissionDenied: There are roles, and none of this name.
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
            hint="Set the setting role (LAKEHOLD_ROLE) to one of them.",
        )
    return found


def has(role: Role, needed: Grant) -> bool:
    """Whether `role` has `needed` itself, by the table's schema, or as a superuser."""
    if role.is_superuser or needed in role.grants:
        return True
    of_all_tables = Grant(needed.privilege, GrantedOn.SCHEMA, needed.object_name.rpartition(".")[0])
    return needed.object_type is GrantedOn.TABLE and of_all_tables in role.grants


def check(roles: Roles, name: str | None, what: str, needed: Iterable[Grant]) -> Role | None:
    """The role that may do `what`; None: there are no roles.

    Raises:
        PermissionDenied: It lacks some of `needed`, or there is no such role.
    """
    role = acting(roles, name, what)
    missing = tuple(grant for grant in needed if not has(role, grant)) if role is not None else ()
    if role is not None and missing:
        detail = f"It lacks {', '.join(map(str, missing))}."
        raise _denied(roles, role, what, detail, "; ".join(_statement(grant, role) for grant in missing))
    return role


def check_change(roles: Roles, name: str | None, what: str, hold: Hold) -> None:
    """Whoever made `hold` may change it, and who may make one where it stands.

    Raises:
        PermissionDenied: The role called `name` is neither.
    """
    role = acting(roles, name, what)
    (create,) = creating_in(hold.namespace)
    if role is None or role.role_id == hold.owner or has(role, create):
        return
    owner = next(
        (f'role "{other.name}"' for other in roles if other.role_id == hold.owner), "no role that is there now"
    )
    detail = f'Hold "{hold.full_name}" was made by {owner}, and it lacks {create}.'
    raise _denied(roles, role, what, detail, _statement(create, role))


def check_superuser(roles: Roles, name: str | None, what: str) -> None:
    """Roles are managed by superusers; while there is no role, by anybody.

    Raises:
        PermissionDenied: The role called `name` is none.
    """
    role = acting(roles, name, what)
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
