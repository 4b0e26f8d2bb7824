"""Roles: permissions for holds and subscriptions, refusals with a remedy, and a superuser who cannot be lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from lakehold.errors import LakeholdError, PermissionDenied
from lakehold.holds import privileges
from lakehold.holds.commands import NewHold
from lakehold.holds.guard import Guard
from lakehold.holds.roles import RoleCommands
from lakehold.lake import connect
from lakehold.model.lake_definitions import Definitions, DerivedEntry, Entry
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.plan.statement_effects import BeginSubscription, EndSubscription, Plan
from lakehold.sql.run.list_holds import HOLD_COLUMNS
from lakehold.sql.run.roles import check_privileges
from lakehold.sql.run.script_run import Runner
from lakehold.sql.statements import CreateMaterializedView, CreateSubscription, GrantPrivileges
from lakehold.state.holds import Check, HeldTable, Hold, HoldStore
from lakehold.state.objects import DefinitionStore
from lakehold.state.roles import ROLES, Grant, GrantedOn, Privilege, Role
from lakehold.state.store import MemoryState
from tests.unread import NoReads, NoSubscriptions, NothingUpstream, holds_without_tags

SELECT_ORDERS = Grant(Privilege.SELECT, GrantedOn.TABLE, "shop.orders")
SELECT_SHOP = Grant(Privilege.SELECT, GrantedOn.SCHEMA, "shop")
CREATE_SHOP = Grant(Privilege.CREATE, GrantedOn.SCHEMA, "shop")
OPS = Role("r1", "ops", True, (), 1)
BI = Role("r2", "bi", False, (), 2)
HOLD = Hold("h1", "shop", "daily", 1, (HeldTable("t", "shop.orders"),), 1, Check.OFF, "", 1)
SHOP = """
CREATE SOURCE shop FROM FILES '/x' FORMAT JSON;
CREATE TABLE shop.orders FROM SOURCE shop (TOPIC 'orders') ENVELOPE UPSERT;
CREATE TABLE shop.items FROM SOURCE shop (TOPIC 'items') ENVELOPE UPSERT;
"""


# --- decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("granted", "needed", "is_allowed"),
    [
        ((), SELECT_ORDERS, False),
        ((SELECT_ORDERS,), SELECT_ORDERS, True),
        ((SELECT_SHOP,), SELECT_ORDERS, True),
        ((SELECT_SHOP,), replace(SELECT_ORDERS, object_name="shop.made_later"), True),
        ((SELECT_SHOP,), replace(SELECT_ORDERS, object_name="shopping.orders"), False),
        ((SELECT_SHOP,), replace(SELECT_ORDERS, object_name="shop.eu.orders"), False),
        ((CREATE_SHOP,), SELECT_ORDERS, False),
        ((SELECT_SHOP,), CREATE_SHOP, False),
        ((CREATE_SHOP,), CREATE_SHOP, True),
        ((replace(CREATE_SHOP, object_name="sh"),), CREATE_SHOP, False),
    ],
)
def test_only_granted_actions_are_allowed(granted: tuple[Grant, ...], needed: Grant, is_allowed: bool) -> None:
    assert privileges.has(replace(BI, grants=granted), needed) is is_allowed
    assert privileges.has(OPS, needed)


def test_without_roles_everything_is_allowed_whatever_role_is_set() -> None:
    assert privileges.check((), None, "create hold", (CREATE_SHOP,)) is None
    assert privileges.check((), "bi", "create hold", (CREATE_SHOP,)) is None
    privileges.check_change((), None, "drop hold", HOLD)
    privileges.check_superuser((), None, "create role")


@pytest.mark.parametrize(
    ("name", "message"), [(None, 'a role is needed to create hold "h"'), ("x", 'role "x" does not exist')]
)
def test_the_error_of_a_program_without_a_role_lists_the_roles(name: str | None, message: str) -> None:
    with pytest.raises(PermissionDenied) as refused:
        privileges.check((OPS, BI), name, 'create hold "h"', ())
    assert (refused.value.code, refused.value.message) == ("role-missing", message)
    assert 'Known: "ops", "bi".' in refused.value.detail
    assert "LAKEHOLD_ROLE" in refused.value.hint


def test_a_missing_privilege_is_named_with_the_statements_that_grant_it() -> None:
    bi = replace(BI, grants=(SELECT_ORDERS,))
    needed = (*privileges.selecting(["shop.orders", "shop.items"]), *privileges.creating_in("bi"))
    with pytest.raises(PermissionDenied) as refused:
        privileges.check((OPS, bi), "bi", 'create hold "h"', needed)
    assert str(refused.value) == (
        'role "bi" may not create hold "h"\n'
        'detail: It lacks SELECT on table "shop.items", CREATE on schema "bi".\n'
        "hint: A superuser (ops) can allow it: "
        "GRANT SELECT ON TABLE shop.items TO bi; GRANT CREATE ON SCHEMA bi TO bi"
    )
    assert refused.value.code == "permission-denied"


def test_the_suggested_grant_can_be_run_whatever_names_it_contains() -> None:
    odd = replace(BI, name="BI team")
    with pytest.raises(PermissionDenied) as refused:
        privileges.check((OPS, odd), odd.name, "create hold", privileges.selecting(["shop.Order`s", "shop.from"]))
    _, _, statements = refused.value.hint.partition(": ")
    granted = [parsed.statement for parsed in parse_script(statements)]
    assert granted == [
        GrantPrivileges((replace(SELECT_ORDERS, object_name=name),), ("BI team",))
        for name in ("shop.Order`s", "shop.from")
    ]


def test_a_hold_is_changed_by_its_role_and_by_those_who_may_create_beside_it() -> None:
    mine = replace(HOLD, owner=BI.role_id)
    privileges.check_change((OPS, BI), "bi", "drop hold", mine)
    privileges.check_change((OPS, BI), "ops", "drop hold", mine)
    with pytest.raises(PermissionDenied, match='was made by role "ops", and it lacks CREATE on schema "shop"'):
        privileges.check_change((OPS, BI), "bi", "drop hold", replace(HOLD, owner=OPS.role_id))
    recreated = replace(BI, role_id="r3")
    with pytest.raises(PermissionDenied, match="was made by no role that exists now"):
        privileges.check_change((OPS, recreated), "bi", "drop hold", mine)
    privileges.check_change((OPS, replace(recreated, grants=(CREATE_SHOP,))), "bi", "drop hold", mine)


# --- statements -------------------------------------------------------------------------------------------------------


class NoTables:
    """Tables that fail the test when data is dropped."""

    def drop_iceberg_table(self, full_name: str, _: str) -> NoReturn:
        pytest.fail(f"{full_name} was dropped")

    def forget_source(self, name: str) -> None:
        """Do nothing, since no source was read."""


def no_spark() -> NoReturn:
    pytest.fail("a statement over roles started Spark")


Program = Callable[[str | None], Runner]


@pytest.fixture
def program() -> Program:
    """Return a factory of programs with a role; all programs work on one lake."""
    definitions, stored, roles = DefinitionStore(MemoryState()), HoldStore(MemoryState()), MemoryState().store(ROLES)

    def made(role: str | None) -> Runner:
        guard = Guard(roles, role)
        holds = holds_without_tags(definitions, stored, guard)
        return Runner(
            definitions,
            NoTables(),
            no_spark,
            NoReads,
            holds,
            NoSubscriptions(),
            RoleCommands(guard),
            NothingUpstream,
        )

    made(None).run(SHOP)
    return made


def refused(lake: Runner, sql: str) -> LakeholdError:
    with pytest.raises(LakeholdError) as error:
        lake.run(sql)
    return error.value


def test_the_first_role_is_a_superuser_and_everybody_else_needs_one_then(program: Program) -> None:
    assert program(None).run("CREATE ROLE ops").notices == (
        'role "ops" is the first one, and so a superuser: from now on holds and subscriptions need privileges',
    )
    assert refused(program(None), "CREATE ROLE mine SUPERUSER").code == "role-missing"
    ops = program("ops")
    assert ops.run("CREATE ROLE bi").notices == ()
    for statement in ("CREATE ROLE x", "DROP ROLE ops", "GRANT CREATE ON SCHEMA shop TO bi"):
        assert refused(program("bi"), statement).detail == "It is not a superuser."
    result = ops.run("SHOW ROLES")
    assert result.columns == ("name", "superuser", "current")
    assert result.rows == [("bi", False, False), ("ops", True, True)]


def test_the_last_superuser_goes_last_and_then_all_is_allowed_again(program: Program) -> None:
    ops = program("ops")
    ops.run("CREATE ROLE ops SUPERUSER; CREATE ROLE bi")
    assert refused(ops, "DROP ROLE ops").code == "last-superuser"
    ops.run("CREATE ROLE other SUPERUSER; DROP ROLE ops")
    program("other").run("DROP ROLE bi; DROP ROLE other")
    program(None).run("CREATE HOLD h ON shop.orders")


def test_roles_are_created_and_dropped_as_other_objects_are(program: Program) -> None:
    ops = program("ops")
    ops.run("CREATE ROLE ops; CREATE ROLE bi")
    assert refused(ops, "CREATE ROLE bi").code == "role-exists"
    assert ops.run("CREATE ROLE IF NOT EXISTS bi").notices == ()
    assert ops.run("CREATE ROLE IF NOT EXISTS bi SUPERUSER").notices == (
        'role "bi" exists and stays as it is: it is not a superuser',
    )
    assert refused(ops, "DROP ROLE nobody").detail == 'Known: "ops", "bi".'
    assert ops.run("DROP ROLE IF EXISTS nobody").notices == ('role "nobody" does not exist: nothing to drop',)
    assert refused(ops, "GRANT CREATE ON SCHEMA shop TO bi, nobody").code == "role-missing"
    assert ops.run("SHOW GRANTS").rows == []


def test_grants_are_shown_once_and_revoked(program: Program) -> None:
    ops = program("ops")
    ops.run("CREATE ROLE ops; CREATE ROLE bi; CREATE ROLE app")
    ops.run("GRANT SELECT ON shop.orders TO bi, app; GRANT SELECT ON TABLE shop.orders TO bi")
    ops.run("GRANT SELECT ON ALL TABLES IN SCHEMA shop TO bi")
    result = ops.run("SHOW GRANTS")
    assert result.columns == ("role", "privilege", "object_type", "object")
    assert result.rows == [
        ("app", "SELECT", "table", "shop.orders"),
        ("bi", "SELECT", "table", "shop.orders"),
        ("bi", "SELECT", "schema", "shop"),
    ]
    assert ops.run("REVOKE SELECT ON shop.orders FROM bi, app").notices == (
        'role "bi" still has SELECT on table "shop.orders"',
    )
    assert ops.run("SHOW GRANTS FOR app").rows == []
    assert ops.run("SHOW GRANTS FOR bi").rows == [("bi", "SELECT", "schema", "shop")]
    assert refused(ops, "SHOW GRANTS FOR nobody").code == "role-missing"


def test_a_hold_requires_select_on_its_tables_and_create_in_its_namespace(program: Program) -> None:
    ops, bi = program("ops"), program("bi")
    ops.run("CREATE ROLE ops; CREATE ROLE bi; GRANT SELECT ON shop.orders TO bi")
    assert refused(bi, "CREATE HOLD h ON shop.orders").detail == 'It lacks CREATE on schema "shop".'
    ops.run("GRANT CREATE ON SCHEMA shop TO bi")
    assert refused(bi, "CREATE HOLD h ON shop.orders, shop.items").detail == 'It lacks SELECT on table "shop.items".'
    assert refused(bi, "CREATE HOLD other.h ON shop.orders").detail == 'It lacks CREATE on schema "other".'
    assert bi.holds.all() == ()
    bi.run("CREATE HOLD h ON shop.orders")
    assert bi.holds.hold("h").owner == bi.roles.role("bi").role_id
    owner_at = HOLD_COLUMNS.index("owner")
    assert [row[owner_at] for row in bi.run("SHOW HOLDS").rows] == ["bi"]
    ops.run("DROP ROLE bi; CREATE ROLE bi")
    assert [row[owner_at] for row in ops.run("SHOW HOLDS").rows] == [None]
    assert refused(program(None), "CREATE HOLD k ON shop.orders").code == "role-missing"


def test_a_hold_in_a_transaction_requires_the_same_privileges_and_leaves_nothing(program: Program) -> None:
    program("ops").run("CREATE ROLE ops; CREATE ROLE bi; GRANT CREATE ON SCHEMA shop TO bi")
    bi = program("bi")
    before = bi.store.definitions()
    transaction = (
        "BEGIN; CREATE TABLE shop.new FROM SOURCE shop (TOPIC 'new') ENVELOPE UPSERT; CREATE HOLD h ON shop.new; COMMIT"
    )
    assert refused(bi, transaction).detail == 'It lacks SELECT on table "shop.new".'
    assert (bi.store.definitions(), bi.holds.all()) == (before, ())
    program("ops").run("GRANT SELECT ON ALL TABLES IN SCHEMA shop TO bi")
    bi.run(transaction)
    assert [hold.name for hold in bi.holds.all()] == ["h"]


@pytest.mark.parametrize(
    "sql",
    [
        "SHOW ROLES;\nCREATE HOLD h ON shop.orders;",
        "BEGIN;\nCREATE HOLD h ON shop.orders;\nCOMMIT".replace(
            "CREATE", "CREATE TABLE shop.new FROM SOURCE shop (TOPIC 'n') ENVELOPE UPSERT; CREATE"
        ).replace("shop.orders", "shop.new"),
    ],
)
def test_a_refused_statement_of_a_script_is_shown_with_its_position(program: Program, sql: str) -> None:
    program("ops").run("CREATE ROLE ops; CREATE ROLE bi; CREATE ROLE nobody")
    error = refused(program("bi"), sql)
    assert error.place is not None
    line, caret = error.place.excerpt().split("\n")
    column = line.index("CREATE HOLD")
    assert (error.place.line, caret) == (2, " " * column + "^" * len(line[column:].rstrip(";")))


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER HOLD h ADVANCE TO 1717156800000",
        "ALTER HOLD h RENAME TO k",
        "DROP HOLD h",
        "DROP TABLE shop.orders CASCADE",
        "DROP SOURCE shop CASCADE",
    ],
)
def test_a_hold_of_somebody_else_is_left_alone(program: Program, sql: str) -> None:
    ops, bi = program("ops"), program("bi")
    ops.run("CREATE ROLE ops; CREATE ROLE bi; GRANT SELECT ON ALL TABLES IN SCHEMA shop TO bi")
    ops.run("CREATE HOLD h ON shop.orders")
    before = (ops.store.definitions(), ops.holds.all())
    assert refused(bi, sql).code == "permission-denied"
    assert (ops.store.definitions(), ops.holds.all()) == before


def test_the_creator_of_a_hold_may_drop_it_without_create(program: Program) -> None:
    ops, bi = program("ops"), program("bi")
    ops.run("CREATE ROLE ops; CREATE ROLE bi")
    ops.run("GRANT SELECT ON shop.orders TO bi; GRANT CREATE ON SCHEMA shop TO bi")
    bi.run("CREATE HOLD h ON shop.orders")
    ops.run("REVOKE CREATE ON SCHEMA shop FROM bi")
    bi.run("ALTER HOLD h RENAME TO k; DROP HOLD k")
    assert bi.holds.all() == ()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE SUBSCRIPTION s INTO bi.changes AS SUBSCRIBE shop.orders",
        "CREATE MATERIALIZED VIEW bi.v AS SELECT id FROM shop.orders",
    ],
)
def test_a_subscription_or_view_requires_select_on_its_tables_and_create_for_its_output(statement: str) -> None:
    (parsed,) = parse_script(statement)
    assert isinstance(parsed.statement, CreateSubscription | CreateMaterializedView)
    store, created = MemoryState().store(ROLES), parsed.statement
    entry: DerivedEntry
    if isinstance(created, CreateSubscription):
        entry = Entry("s1", created.subscription, "", 1)
    else:
        entry = Entry("v1", created.view, "", 1)
    begin = Plan((BeginSubscription(entry.definition),))
    end = Plan((EndSubscription(entry, with_output=False),))
    create_bi = replace(CREATE_SHOP, object_name="bi")

    def is_allowed(plan: Plan, *granted: Grant) -> bool:
        store.change(lambda _: (OPS, replace(BI, grants=granted)))
        try:
            check_privileges(plan, Guard(store, "bi"))
        except PermissionDenied:
            return False
        return True

    assert is_allowed(begin, SELECT_SHOP, create_bi)
    assert not is_allowed(begin, SELECT_SHOP, CREATE_SHOP)
    assert not is_allowed(begin, create_bi)
    assert is_allowed(end, create_bi)
    assert not is_allowed(end, SELECT_SHOP)


# --- a lake -----------------------------------------------------------------------------------------------------------


def test_the_role_of_a_program_is_a_setting_and_counts_for_python_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = "CREATE SUBSCRIPTION s INTO bi.changes AS SUBSCRIBE shop.orders"
    with connect(str(tmp_path), role="ops") as ops:
        ops.sql(SHOP)
        ops.sql("CREATE ROLE ops; CREATE ROLE bi; CREATE HOLD h ON shop.orders")
    monkeypatch.setenv("LAKEHOLD_ROLE", "bi")
    with connect(str(tmp_path)) as bi:
        with pytest.raises(PermissionDenied, match=r'may not drop hold "shop\.h"'):
            bi.holds.drop("h")
        with pytest.raises(PermissionDenied, match='may not open durable client "app"'):
            bi.durable("app", "SUBSCRIBE shop.orders")
        with pytest.raises(PermissionDenied, match=r'lacks SELECT on table "shop\.orders", CREATE on schema "bi"'):
            bi.sql(subscription)
        assert bi.definitions.definitions().subscriptions == {}
    monkeypatch.setenv("LAKEHOLD_ROLE", "")
    with connect(str(tmp_path)) as nobody, pytest.raises(PermissionDenied) as refusal:
        nobody.sql("DROP HOLD h")
    assert refusal.value.code == "role-missing"


def test_lakeholds_own_work_needs_no_role(tmp_path: Path) -> None:
    with connect(str(tmp_path)) as lake:
        lake.sql(SHOP)
        lake.sql("CREATE ROLE ops")
        of_subscribers = lake.subscriptions.holds
        assert of_subscribers.create(NewHold("h", None, ("shop.orders",), kept_by="s")).owner is None
        with pytest.raises(PermissionDenied):
            lake.holds.drop("h")
        of_subscribers.drop("h")
        assert lake.holds.all() == ()


def test_a_subscription_made_just_before_a_drop_commits_is_not_dropped_without_privilege(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(None).run("CREATE ROLE ops WITH SUPERUSER")
    program("ops").run("CREATE ROLE bi")
    bi = program("bi")
    (parsed,) = parse_script("CREATE SUBSCRIPTION s INTO out.s AS SUBSCRIBE shop.orders")
    assert isinstance(parsed.statement, CreateSubscription)
    entry = Entry("made meanwhile", parsed.statement.subscription, "", 1)
    change = bi.store.change

    def overtaken(apply: Callable[[Definitions], Definitions]) -> Definitions:
        change(lambda known: known.with_entry(entry))
        return change(apply)

    monkeypatch.setattr(bi.store, "change", overtaken)
    with pytest.raises(PermissionDenied, match='drop subscription "s"'):
        bi.run("DROP TABLE shop.orders CASCADE")
    definitions = bi.store.definitions()
    assert ("shop.orders" in definitions.tables, "s" in definitions.subscriptions) == (True, True)
