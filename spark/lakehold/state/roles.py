"""Roles and their grants, as rows of `mz_catalog.mz_roles`: one table, so that any change of them is one commit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakehold.state.rows import Rows


class Privilege(StrEnum):
    """A privilege, as GRANT writes it."""

    SELECT = "SELECT"
    CREATE = "CREATE"


class GrantedOn(StrEnum):
    """The kind of object that a privilege is granted on."""

    TABLE = "table"
    SCHEMA = "schema"


@dataclass(frozen=True)
class Grant:
    """A privilege on an object, which need not exist; SELECT on a schema is SELECT on all tables it ever has.

    `object_name` is the full name of the table, or of the namespace.
    """

    privilege: Privilege
    object_type: GrantedOn
    object_name: str

    def __str__(self) -> str:
        return f'{self.privilege} on {self.object_type} "{self.object_name}"'


@dataclass(frozen=True)
class Role:
    """A role: its privileges count for a program that names it in the setting `role`.

    Attributes:
        role_id: An id that is never reused.
        name: No other role has it.
        is_superuser: Whether it has every privilege, and manages roles.
        grants: Its privileges otherwise.
        created_at_ms: Epoch milliseconds.
    """

    role_id: str
    name: str
    is_superuser: bool
    grants: tuple[Grant, ...]
    created_at_ms: int


Roles = tuple[Role, ...]

ROLES = Rows("mz_catalog.mz_roles", Role, {"role_id": "id", "is_superuser": "superuser"})
