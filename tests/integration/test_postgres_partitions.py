"""A real PostgreSQL logs rows of a partitioned table by the replica identity of each partition, and so lakehold finds that."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from lakehold.servers import HOST
from lakehold.stack.parts.postgres import Postgres
from lakehold.upstream.database import Names
from lakehold.upstream.found.found import OTHER_COLUMNS, UNLOGGED, FoundLeaf, FoundTable
from lakehold.upstream.postgres.database import PostgresUpstream
from lakehold.upstream.wanted.connector_config import Login
from tests.catalog_servers import postgres_server as postgres_server  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = pytest.mark.stack

_TIMEOUT_S = 5.0


@pytest.fixture
def connection(postgres_server: Postgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_server.addresses.postgres(), autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS parted CASCADE")
        connection.execute("CREATE SCHEMA parted")
        connection.execute("SET search_path = parted")
        yield connection


def found(connection: psycopg.Connection, *tables: str) -> dict[str, FoundTable]:
    info, names = connection.info, [f"parted.{table}" for table in tables]
    upstream = PostgresUpstream(Login(HOST, info.port, info.user, info.password, info.dbname), _TIMEOUT_S)
    database, _ = upstream.inspect(Names("p", "s", "lakehold_signals.t"), "id", names)
    return {name.removeprefix("parted."): table for name, table in database.tables.items()}


def run(connection: psycopg.Connection, *statements: str) -> None:
    for statement in statements:
        connection.execute(statement.encode())


def may_update(connection: psycopg.Connection, table: str) -> bool:
    """Return whether PostgreSQL takes an UPDATE of a table while it is published."""
    publish = f"CREATE PUBLICATION parted FOR TABLE ONLY {table} WITH (publish_via_partition_root = true)"
    try:
        run(connection, publish, f"UPDATE {table} SET n = 1")
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return False
    finally:
        connection.execute("DROP PUBLICATION parted")
    return True


def test_a_table_is_logged_by_the_weakest_of_its_partitions(connection: psycopg.Connection) -> None:
    run(
        connection,
        "CREATE TABLE logs (id int, n int) PARTITION BY RANGE (id)",
        "CREATE TABLE early PARTITION OF logs FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE late PARTITION OF logs FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id)",
        "ALTER TABLE logs REPLICA IDENTITY FULL",
        "CREATE TABLE later PARTITION OF late FOR VALUES FROM (10) TO (20)",
        "INSERT INTO logs VALUES (1, 0), (11, 0)",
    )
    unknown = FoundTable("n", has_key=False, leaves=(FoundLeaf("parted.early", "n"), FoundLeaf("parted.later", "n")))
    assert found(connection, "logs") == {"logs": unknown}
    assert not may_update(connection, "logs")
    run(connection, "ALTER TABLE early REPLICA IDENTITY FULL")
    assert found(connection, "logs")["logs"].replica_identity == "n"
    assert not may_update(connection, "logs")
    run(connection, "ALTER TABLE later REPLICA IDENTITY FULL")
    assert found(connection, "logs")["logs"].replica_identity == "f"
    assert may_update(connection, "logs")


def test_a_partition_that_is_added_later_does_not_log_whole_rows(connection: psycopg.Connection) -> None:
    run(
        connection,
        "CREATE TABLE keyed (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
        "ALTER TABLE keyed REPLICA IDENTITY FULL",
    )
    assert found(connection, "keyed") == {"keyed": FoundTable("f", has_key=True)}
    run(connection, "CREATE TABLE first PARTITION OF keyed FOR VALUES FROM (0) TO (10)")
    assert found(connection, "keyed") == {"keyed": FoundTable("d", True, leaves=(FoundLeaf("parted.first", "d"),))}


@pytest.mark.parametrize(
    ("made", "identity"),
    [
        (["id int PRIMARY KEY, n int"], "d"),
        (["id int PRIMARY KEY DEFERRABLE, n int"], "n"),
        (["id int NOT NULL UNIQUE, n int"], "n"),
        (["id int NOT NULL UNIQUE, n int", "ALTER TABLE t REPLICA IDENTITY USING INDEX t_id_key"], "i"),
        (
            [
                "id int NOT NULL UNIQUE, n int",
                "ALTER TABLE t REPLICA IDENTITY USING INDEX t_id_key",
                "ALTER TABLE t DROP CONSTRAINT t_id_key",
            ],
            "n",
        ),
        (["id int PRIMARY KEY, n int", "ALTER TABLE t REPLICA IDENTITY NOTHING"], "n"),
        (
            ["id int PRIMARY KEY, n int NOT NULL UNIQUE", "ALTER TABLE t REPLICA IDENTITY USING INDEX t_n_key"],
            OTHER_COLUMNS,
        ),
        (
            [
                "id int PRIMARY KEY, n int NOT NULL",
                "CREATE UNIQUE INDEX by_n ON t (n, id)",
                "ALTER TABLE t REPLICA IDENTITY USING INDEX by_n",
            ],
            "i",
        ),
        (
            [
                "id int PRIMARY KEY, n int NOT NULL",
                "CREATE UNIQUE INDEX more ON t (n) INCLUDE (id)",
                "ALTER TABLE t REPLICA IDENTITY USING INDEX more",
            ],
            OTHER_COLUMNS,
        ),
        (["id int, n int", "ALTER TABLE t REPLICA IDENTITY FULL"], "f"),
    ],
)
def test_a_replica_identity_that_identifies_no_row_is_found(
    connection: psycopg.Connection, made: list[str], identity: str
) -> None:
    columns, *altered = made
    run(connection, f"CREATE TABLE t ({columns})", *altered, "INSERT INTO t VALUES (1, 0)")
    assert found(connection, "t")["t"].replica_identity == identity
    assert may_update(connection, "t") == (identity != "n")


def test_partitions_whose_changes_are_not_logged_are_found(connection: psycopg.Connection) -> None:
    run(
        connection,
        "CREATE TABLE mixed (id int, n int) PARTITION BY RANGE (id)",
        "CREATE TABLE whole PARTITION OF mixed FOR VALUES FROM (0) TO (10)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE UNLOGGED TABLE fast PARTITION OF mixed FOR VALUES FROM (10) TO (20)",
        "DROP FOREIGN DATA WRAPPER IF EXISTS elsewhere CASCADE",
        "CREATE FOREIGN DATA WRAPPER elsewhere",
        "CREATE SERVER elsewhere FOREIGN DATA WRAPPER elsewhere",
        "CREATE FOREIGN TABLE far PARTITION OF mixed FOR VALUES FROM (20) TO (30) SERVER elsewhere",
    )
    assert found(connection, "mixed")["mixed"] == FoundTable(
        "f",
        has_key=False,
        leaves=(
            FoundLeaf("parted.far", "n", "foreign table"),
            FoundLeaf("parted.fast", "n", UNLOGGED),
            FoundLeaf("parted.whole", "f"),
        ),
    )
    run(
        connection,
        "ALTER TABLE mixed DETACH PARTITION far",
        "ALTER TABLE fast SET LOGGED",
        "DROP FOREIGN DATA WRAPPER elsewhere CASCADE",
    )
    assert [leaf.unlogged for leaf in found(connection, "mixed")["mixed"].leaves] == ["", ""]
