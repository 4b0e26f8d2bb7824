"""Running statements on roles, and checking the privileges that other statements need before they change anything."""

from __future__ import annotations

from typing import assert_never

from lakehold.definitions import MaterializedView, Subscription, described
from lakehold.holds import privileges
from lakehold.holds.guard import Guard
from lakehold.holds.roles import RoleCommands
from lakehold.sql.plan.statement_effects import (
    BeginSubscription,
    ChangeDefinition,
    DropHolds,
    EndSubscription,
    NameHold,
    Plan,
)
from lakehold.sql.result import Result
from lakehold.sql.statements import (
    CreateRole,
    DropRole,
    GrantPrivileges,
    RevokePrivileges,
    RoleStatement,
    ShowGrants,
    ShowRoles,
)
from lakehold.state.roles import Roles

ROLE_COLUMNS = ("name", "superuser", "current")
GRANT_COLUMNS = ("role", "privilege", "object_type", "object")


def run_on_roles(statement: RoleStatement, roles: RoleCommands) -> Result:
    """Run a statement on the roles of a lake.

    Raises:
        DefinitionError: A role does not exist, or its name is taken.
        PermissionDenied: The program's role is not a superuser.
    """
    match statement:
        case CreateRole():
            return _create(statement, roles)
        case DropRole():
            return _drop(statement, roles)
        case GrantPrivileges(grants, names):
            roles.grant(grants, names)
            return Result()
        case RevokePrivileges():
            return _revoke(statement, roles)
        case ShowRoles():
            rows = [(role.name, role.is_superuser, role.name == roles.guard.role) for role in roles.all()]
            return Result(ROLE_COLUMNS, sorted(rows))
        case ShowGrants(name):
            return _show_grants(roles.all() if name is None else (roles.role(name),))
        case other:
            assert_never(other)


def check_privileges(plan: Plan, guard: Guard) -> None:
    """Check that the program's role may make the effects of `plan` on subscriptions and on existing holds.

    Raises:
        PermissionDenied: The role lacks a privilege.
    """
    for effect in plan.effects:
        match effect:
            case BeginSubscription(new):
                needed = (*privileges.selecting(new.tables), *privileges.creating_in(new.into.rpartition(".")[0]))
                guard.check(f"create {described(new)}", needed)
            case ChangeDefinition(Subscription() | MaterializedView() as changed):
                guard.check(f"alter {described(changed)}", privileges.creating_in(changed.into.rpartition(".")[0]))
            case EndSubscription(entry, _):
                ended = entry.definition
                guard.check(f"drop {described(ended)}", privileges.creating_in(ended.into.rpartition(".")[0]))
            case NameHold(hold, _):
                guard.check_change(f'rename hold "{hold.full_name}"', hold)
            case DropHolds(holds):
                for hold in holds:
                    guard.check_change(f'drop hold "{hold.full_name}"', hold)
            case _:
                pass  # Needs no privilege, or checks it when it runs.


def _create(statement: CreateRole, roles: RoleCommands) -> Result:
    name, wanted = statement.name, statement.is_superuser
    is_first = not roles.all()
    role = roles.create(name, is_superuser=wanted, if_not_exists=statement.if_not_exists)
    if role.is_superuser == wanted:
        return Result()
    if is_first:
        text = (
            f'role "{name}" is the first one, and so a superuser: from now on holds and subscriptions need privileges'
        )
    else:
        kind = "a superuser" if role.is_superuser else "not a superuser"
        text = f'role "{name}" exists and stays as it is: it is {kind}'
    return Result(notices=(text,))


def _drop(statement: DropRole, roles: RoleCommands) -> Result:
    if statement.if_exists and not any(role.name == statement.name for role in roles.all()):
        return Result(notices=(f'role "{statement.name}" does not exist: nothing to drop',))
    roles.drop(statement.name)
    return Result()


def _revoke(statement: RevokePrivileges, roles: RoleCommands) -> Result:
    """Revoke privileges, and report those that a role still has in another way."""
    roles.revoke(statement.grants, statement.roles)
    return Result(
        notices=tuple(
            f'role "{role.name}" still has {grant}'
            for role in roles.all()
            for grant in statement.grants
            if role.name in statement.roles and privileges.has(role, grant)
        )
    )


def _show_grants(shown: Roles) -> Result:
    return Result(
        GRANT_COLUMNS,
        [
            (role.name, grant.privilege.value, grant.object_type.value, grant.object_name)
            for role in sorted(shown, key=lambda role: role.name)
            for grant in role.grants
        ],
    )
