"""A table that lakehold does not capture is compared with a PostgreSQL, also with a standby that is behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from lakehold.overview import gather
from lakehold.upstream.postgres.database import PostgresUpstream
from lakehold.upstream.wanted.connector_config import Login
from lakehold.verify.comparison import Side
from tests.conftest import LakeFactory
from tests.live_source import execute
from tests.postgres_standby import ReplicatedServer
from tests.runnable_pages import checked
from tests.stack_fixtures import SourceDatabase, open_directory
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_USERS = [
    "CREATE TABLE users (id int PRIMARY KEY, email text, paid numeric(12, 2), rate numeric, at timestamptz, took interval, "
    "seal bytea DEFAULT '\\x00ff', twice int GENERATED ALWAYS AS (id * 2) STORED)",
    "INSERT INTO users SELECT i, 'user ' || i, i / 100.0, i / 10.0, timestamptz '2026-01-01 00:00+00' + i * interval '1 second', "
    "interval '1 hour' FROM generate_series(1, 500) i",
]
_COPY = (
    "CREATE TABLE {} USING iceberg AS SELECT int(id) AS id, concat('user ', id) AS email, "
    "CAST(id / 100 AS DECIMAL(12, 2)) AS paid, format_number(id / 10, '0.00') AS rate, "
    "timestampadd(SECOND, id, TIMESTAMP '2026-01-01 00:00:00Z') AS at, "
    "3600000000 AS took, '00ff' AS seal, int(id * 2) AS twice, 'spark' AS made_by FROM range(1, 501)"
)


@pytest.fixture
def lake(make_lake: LakeFactory, database: SourceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    lake = make_lake(foreign_lag_ms=50, expectations=str(tmp_path))
    addresses = database.addresses
    lake.sql(
        f"CREATE CONNECTION pg TO POSTGRES (HOST '{addresses.postgres_host}', PORT {addresses.postgres_port}, "
        f"USER '{addresses.postgres_user}', PASSWORD SECRET 'pg', DATABASE '{database.name}')"
    )
    return lake


def test_a_copy_by_other_means_is_compared_and_its_verdict_kept(
    lake: Lake, database: SourceDatabase, tmp_path: Path
) -> None:
    execute(database, _USERS)
    table = f"{lake.settings.catalog_name}.bi.users"
    lake.sql(f"CREATE NAMESPACE bi; {_COPY.format(table)}")
    # The page's command has the same arguments.
    assert checked("docs/how-to/verify-a-table.md", __file__) == [
        "lakehold verify bi.users --connection pg --upstream public.users\n"
    ]
    found = lake.verify("bi.users", connection="pg", upstream="public.users")
    assert found.differences == ()
    assert (found.rows_in_lake, found.rows_in_database, found.reasons) == (500, 500, ())
    assert found.columns == ("id", "email", "paid", "rate", "at", "twice")
    assert {column.name: column.reason for column in found.skipped} == {
        "took": "the lake's table has values of interval as numbers",
        "seal": "the lake's table has values of bytea as texts, which may be hex or base64",
        "made_by": "the database does not have it",
    }

    execute(database, ["UPDATE users SET email = 'new' WHERE id = 7", "DELETE FROM users WHERE id = 8"])
    lake.spark.sql(f"DELETE FROM {table} WHERE id = 9")
    found = lake.verify("bi.users", connection="pg", upstream="public.users")
    assert {each.key: (each.side, each.columns) for each in found.differences} == {
        ("7",): (Side.VALUES_DIFFER, ("email",)),
        ("8",): (Side.ONLY_IN_LAKE, ()),
        ("9",): (Side.ONLY_IN_DATABASE, ()),
    }
    (reason,) = found.reasons
    assert reason.startswith("bi.users is not captured from the database; its newest snapshot is of ")
    equal, differing = [check for check in lake.checks.kept.values() if check.is_comparison]
    assert (equal.success, equal.failures) == (True, ())
    assert (differing.success, differing.snapshot_id) == (False, found.snapshot_id)
    (failure,) = differing.failures
    for text in ("3 keys that differ", "key 7 values differ: email", "key 9 only in the database", reason):
        assert text in failure
        assert text in Path(differing.html_path).read_text()

    lake.sql("CREATE HOLD kept ON bi.users")
    (facts,) = [table for table in gather(lake).tables if table.name == "bi.users"]
    assert [(check.is_comparison, check.success) for check in facts.checks] == [(True, False)]

    (tmp_path / "bi.users.json").write_text(
        '{"name": "bi.users", "expectations": [{"type": "expect_table_to_equal_its_database", '
        '"kwargs": {"connection": "pg", "upstream": "public.users"}}]}'
    )
    (outcome,) = lake.check("bi.users").failed
    assert "3 keys that differ" in outcome.found
    execute(database, ["UPDATE users SET email = 'user 7' WHERE id = 7", "DELETE FROM users WHERE id = 9"])
    lake.spark.sql(f"DELETE FROM {table} WHERE id = 8")
    (outcome,) = lake.check("bi.users").outcomes
    assert (outcome.success, outcome.found) == (True, "498 equal rows")
    with pytest.raises(LakeholdError, match=r'table "public\.user" is not in the database at ') as missing:
        lake.verify("bi.users", connection="pg", upstream="public.user")
    assert missing.value.code == "upstream-table-missing"


def test_a_standby_that_is_behind_says_how_far_it_is(make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_directory() as directory:
        server = ReplicatedServer(Path(directory))
        try:
            _compare_with_standby(make_lake, server, monkeypatch)
        finally:
            server.stop()


def _compare_with_standby(make_lake: LakeFactory, server: ReplicatedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    standby = psycopg.conninfo.conninfo_to_dict(server.standby.addresses.postgres())
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", str(standby["password"]))
    lake = make_lake(foreign_lag_ms=50)
    lake.sql(
        f"CREATE CONNECTION standby TO POSTGRES (HOST '{standby['host']}', PORT {standby['port']}, "
        f"USER '{standby['user']}', PASSWORD SECRET 'pg', DATABASE 'postgres'); CREATE NAMESPACE bi"
    )
    table = f"{lake.settings.catalog_name}.bi.users"

    def on(address: str, *statements: str) -> list[Any]:
        with psycopg.connect(address, autocommit=True) as connection:
            cursors = [connection.execute(statement.encode()) for statement in statements]
            return cursors[-1].fetchall() if cursors[-1].description else []

    primary, behind = server.primary.addresses.postgres(), server.standby.addresses.postgres()
    on(primary, *_USERS)
    server.wait_until_replayed()
    lake.sql(_COPY.format(table))
    on(behind, "SELECT pg_wal_replay_pause()")
    wait_for(lambda: on(behind, "SELECT pg_get_wal_replay_pause_state()") == [("paused",)], "the standby is paused")
    on(primary, "DELETE FROM users WHERE id = 500")
    lake.spark.sql(f"DELETE FROM {table} WHERE id = 500")

    found = lake.verify("bi.users", connection="standby", upstream="public.users")
    assert [(each.key, each.side) for each in found.differences] == [(("500",), Side.ONLY_IN_DATABASE)]
    assert found.reasons[0].startswith("the database is a standby, which had replayed the log of its primary up to 20")
    on(behind, "SELECT pg_wal_replay_resume()")
    server.wait_until_replayed()
    found = lake.verify("bi.users", connection="standby", upstream="public.users")
    assert (found.is_equal, len(found.reasons)) == (True, 1)

    login = Login(
        str(standby["host"]), int(str(standby["port"])), str(standby["user"]), str(standby["password"]), "postgres"
    )
    with pytest.raises(LakeholdError, match="is a standby") as refused:
        PostgresUpstream(login, 10).write_sync_point("")
    assert refused.value.code == "database-standby", "a captured table needs a mark in the log of the primary"
