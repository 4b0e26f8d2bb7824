"""Roles and what is granted to them, as rows of `mz_catalog.mz_roles`: one table, so that any change of them is one commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from pyiceberg.catalog import Catalog

from lakehold.state.state_table import Row, StateValues

ROLES_TABLE = "mz_catalog.mz_roles"


class Privilege(StrEnum):
    """What a role may do, as GRANT writes it."""

    SELECT = "SELECT"
    CREATE = "CREATE"


class GrantedOn(StrEnum):
    """Kinds of objects that privileges are granted on."""

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
    """Whose privileges count for a program that has it as its setting `role`.

    Attributes:
        role_id: Never used again.
        name: No other role has it.
        is_superuser: Whether it has every privilege, and manages roles.
        grants: What it may do otherwise.
        created_at_ms: Epoch milliseconds.
    """

    role_id: str
    name: str
    is_superuser: bool
    grants: tuple[Grant, ...]
    created_at_ms: int


Roles = tuple[Role, ...]


class RoleStore(ABC):
    """Reads and changes roles."""

    @abstractmethod
    def roles(self) -> Roles:
        """All roles now, in order of creation."""

    @abstractmethod
    def change(self, apply: Callable[[Roles], Iterable[Role]]) -> Roles:
        """Replace the roles by `apply(current)` in one commit and return them.

        `apply` runs again on the newest roles when another writer came between; it raises to refuse.
        """


class PyIcebergRoles(RoleStore):
    """The roles of the lake behind `catalog`."""

    def __init__(self, catalog: Catalog) -> None:
        self._roles = StateValues(catalog, ROLES_TABLE, _from_row, _to_row)

    def roles(self) -> Roles:
        """All roles now, in order of creation."""
        return self._roles.values()

    def change(self, apply: Callable[[Roles], Iterable[Role]]) -> Roles:
        """Replace the roles by `apply(current)` in one commit and return them."""
        return self._roles.change(apply)


def _from_row(row: Row) -> Role:
    return Role(
        role_id=row["id"],
        name=row["name"],
        is_superuser=row["superuser"],
        grants=tuple(
            Grant(Privilege(grant["privilege"]), GrantedOn(grant["object_type"]), grant["object_name"])
            for grant in row["grants"]
        ),
        created_at_ms=row["created_at_ms"],
    )


def _to_row(role: Role) -> Row:
    return {
        "id": role.role_id,
        "name": role.name,
        "superuser": role.is_superuser,
        "grants": [
            {
                "privilege": grant.privilege.value,
                "object_type": grant.object_type.value,
                "object_name": grant.object_name,
            }
            for grant in role.grants
        ],
        "created_at_ms": role.created_at_ms,
    }
