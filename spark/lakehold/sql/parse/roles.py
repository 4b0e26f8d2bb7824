"""Parsing statements on roles and privileges, in the grammar of Materialize where it has them."""

from __future__ import annotations

from lakehold.sql.parse.holds import table_list
from lakehold.sql.statements import CreateRole, DropRole, GrantPrivileges, RevokePrivileges, ShowGrants, ShowRoles
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.names import namespace_reference
from lakehold.state.roles import Grant, GrantedOn, Privilege

_A_ROLE = "a role name"


def parse_create_role(cursor: Cursor) -> CreateRole:
    """Parse `[IF NOT EXISTS] name [[WITH] SUPERUSER]`."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.object_name(_A_ROLE)
    is_superuser = cursor.accept("WITH")
    if is_superuser or not cursor.at_end:
        cursor.expect("SUPERUSER")
        is_superuser = True
    cursor.expect_end()
    return CreateRole(name, is_superuser, if_not_exists)


def parse_drop_role(cursor: Cursor) -> DropRole:
    """Parse `[IF EXISTS] name`."""
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.object_name(_A_ROLE)
    cursor.expect_end()
    return DropRole(name, if_exists)


def parse_grant(cursor: Cursor) -> GrantPrivileges:
    """Parse `privilege ON object, … TO role, …`."""
    grants = _grants(cursor)
    cursor.expect("TO")
    return GrantPrivileges(grants, _roles(cursor))


def parse_revoke(cursor: Cursor) -> RevokePrivileges:
    """Parse `privilege ON object, … FROM role, …`."""
    grants = _grants(cursor)
    cursor.expect("FROM")
    return RevokePrivileges(grants, _roles(cursor))


def parse_show_roles(cursor: Cursor) -> ShowRoles:
    """Parse SHOW ROLES, after which nothing may follow."""
    cursor.expect_end()
    return ShowRoles()


def parse_show_grants(cursor: Cursor) -> ShowGrants:
    """Parse `[FOR role]`."""
    role = cursor.object_name(_A_ROLE) if cursor.accept("FOR") else None
    cursor.expect_end()
    return ShowGrants(role)


def _grants(cursor: Cursor) -> tuple[Grant, ...]:
    privilege = Privilege(cursor.choose("SELECT", "CREATE"))
    cursor.expect("ON")
    if privilege is Privilege.SELECT and not cursor.accept("ALL", "TABLES", "IN"):
        if cursor.word() in ("SCHEMA", "NAMESPACE") and cursor.word(1):
            raise cursor.error("a table", "ALL TABLES IN SCHEMA")
        cursor.accept("TABLE")
        return tuple(Grant(privilege, GrantedOn.TABLE, name) for name in table_list(cursor))
    cursor.choose("SCHEMA", "NAMESPACE")
    return tuple(Grant(privilege, GrantedOn.SCHEMA, name) for name in _schemas(cursor))


def _schemas(cursor: Cursor) -> list[str]:
    schemas = [namespace_reference(cursor)]
    while cursor.accept_symbol(","):
        schemas.append(namespace_reference(cursor))
    return schemas


def _roles(cursor: Cursor) -> tuple[str, ...]:
    roles = [cursor.object_name(_A_ROLE)]
    while cursor.accept_symbol(","):
        roles.append(cursor.object_name(_A_ROLE))
    cursor.expect_end()
    return tuple(roles)
