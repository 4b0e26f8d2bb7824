"""Roles in memory and in a lake: what comes back is what was put there, and those who change them at once lose nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pyiceberg.catalog import Catalog

from lakehold.errors import DefinitionError
from lakehold.state.memory import MemoryRoles
from lakehold.state.roles import ROLES_TABLE, Grant, GrantedOn, Privilege, PyIcebergRoles, Role, Roles, RoleStore
from tests.contract.conftest import STORES, CatalogOf

OPS = Role("r1", "ops", True, (), 1)
READ_SHOP = Grant(Privilege.SELECT, GrantedOn.SCHEMA, "shop")
MAKE_IN_BI = Grant(Privilege.CREATE, GrantedOn.SCHEMA, "bi")
BI = Role("r2", "bi", False, (READ_SHOP, MAKE_IN_BI), 2)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, catalog_of: CatalogOf) -> RoleStore:
    return MemoryRoles() if request.param == "memory" else PyIcebergRoles(catalog_of(request.param))


def test_roles_come_back_as_they_were_made(store: RoleStore) -> None:
    assert store.roles() == ()
    assert store.change(lambda none: (*none, OPS, BI)) == (OPS, BI)
    assert store.roles() == (OPS, BI)
    assert store.change(lambda roles: (roles[0], replace(roles[1], grants=()))) == (OPS, replace(BI, grants=()))
    assert store.change(lambda _: ()) == ()
    assert store.roles() == ()


def test_a_refused_change_leaves_nothing(store: RoleStore) -> None:
    store.change(lambda _: (OPS,))

    def refuse(_: Roles) -> Roles:
        raise DefinitionError('role "ops" already exists')

    with pytest.raises(DefinitionError):
        store.change(refuse)
    assert store.roles() == (OPS,)


def test_changes_of_many_threads_lose_nothing(store: RoleStore) -> None:
    def add(number: int) -> None:
        store.change(lambda roles: (*roles, replace(BI, role_id=f"r{number}", name=f"bi{number}")))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(24)))
    assert sorted(role.role_id for role in store.roles()) == sorted(f"r{number}" for number in range(24))


def test_a_statement_is_one_commit_and_its_grants_can_be_queried(catalog: Catalog) -> None:
    store = PyIcebergRoles(catalog)
    store.change(lambda _: (OPS, BI))
    store.change(lambda roles: roles)
    table = catalog.load_table(ROLES_TABLE)
    assert len(table.metadata.snapshots) == 1
    rows = table.scan(selected_fields=("name", "superuser", "grants")).to_arrow().to_pylist()
    assert rows == [
        {"name": "ops", "superuser": True, "grants": []},
        {
            "name": "bi",
            "superuser": False,
            "grants": [
                {"privilege": "SELECT", "object_type": "schema", "object_name": "shop"},
                {"privilege": "CREATE", "object_type": "schema", "object_name": "bi"},
            ],
        },
    ]
