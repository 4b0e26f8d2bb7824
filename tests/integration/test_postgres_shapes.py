"""A real PostgreSQL's catalogue shows which changes of a table changed rows without an event."""

from __future__ import annotations

import psycopg
import pytest

from lakehold.stack.parts.postgres import Postgres
from lakehold.upstream.differences.silent_changes import SilentChange, silent_change
from lakehold.upstream.postgres.shapes import shapes_of
from tests.catalog_servers import postgres_server as postgres_server  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = pytest.mark.stack

_MADE = (
    "DROP SCHEMA IF EXISTS shapes, aside CASCADE",
    "DROP TYPE IF EXISTS feeling CASCADE",
    "CREATE SCHEMA shapes",
    "CREATE SCHEMA aside",
    "CREATE TYPE feeling AS ENUM ('happy', 'sad')",
    "SET search_path = shapes, public",
    "CREATE TABLE t (id int PRIMARY KEY, n int, note varchar(30), mood feeling, moods feeling[], other int)",
    "ALTER TABLE t ADD filled int, ALTER filled SET DEFAULT 5",
    "INSERT INTO t VALUES (1, 1, 'a', 'happy')",
    "CREATE TABLE p (id int PRIMARY KEY, n int, note text) PARTITION BY RANGE (id)",
    "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
    "CREATE TABLE p3 (LIKE p INCLUDING ALL)",
    "INSERT INTO p VALUES (1, 1, 'a')",
)
_SWAP = "ALTER TABLE t RENAME n TO x; ALTER TABLE t RENAME other TO n; ALTER TABLE t RENAME x TO other"
_ATTACH = "ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)"

NOTHING = [
    "ALTER TABLE t ADD c int",
    "ALTER TABLE t ADD c int NOT NULL DEFAULT 5, ADD d timestamptz DEFAULT now()",
    "ALTER TABLE t ADD c serial, ADD d uuid DEFAULT gen_random_uuid()",
    "ALTER TABLE t ADD c int GENERATED ALWAYS AS (id * 2) STORED",
    "ALTER TABLE t DROP note",
    "ALTER TABLE t RENAME note TO remark",
    "ALTER TABLE t ADD c int; ALTER TABLE t RENAME c TO d",
    "ALTER TABLE t DROP n; ALTER TABLE t ADD c int; VACUUM ANALYZE t",
    "ALTER TABLE t DROP n, ADD c int DEFAULT 5; CREATE INDEX ON t (c)",
    "ALTER TABLE t ALTER note TYPE varchar(40)",
    "ALTER TABLE t ALTER n SET NOT NULL, ALTER n SET DEFAULT 3, ADD CHECK (n > 0)",
    "ALTER TABLE t ALTER filled SET DEFAULT 6",
    "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (n)",
    "ALTER TABLE t ALTER note SET STORAGE EXTERNAL, ALTER note SET STATISTICS 5, REPLICA IDENTITY FULL",
    "CREATE INDEX ON t (n); COMMENT ON TABLE t IS 'x'; VACUUM ANALYZE t",
    "VACUUM FULL t",
    "CLUSTER t USING t_pkey",
    "TRUNCATE t",
    "ALTER TYPE feeling ADD VALUE 'so so' BEFORE 'sad'",
    "CREATE TABLE p4 PARTITION OF p FOR VALUES FROM (30) TO (40); INSERT INTO p VALUES (31, 1, 'b')",
    "CREATE TABLE p4 PARTITION OF p FOR VALUES FROM (30) TO (40) PARTITION BY RANGE (id); "
    "CREATE TABLE p5 PARTITION OF p4 FOR VALUES FROM (30) TO (35)",
    "ALTER TABLE p RENAME note TO remark",
    "ALTER TABLE p1 RENAME TO first",
    "ALTER TABLE p ADD c int DEFAULT 5",
    "GRANT SELECT ON t TO pg_monitor; REVOKE SELECT ON t FROM pg_monitor; GRANT USAGE ON SCHEMA shapes TO pg_monitor",
]
VALUES = [
    "ALTER TABLE t ALTER n TYPE bigint",
    "ALTER TABLE t ALTER n TYPE int USING n * 2",
    "ALTER TABLE t ALTER note TYPE text USING upper(note)",
    "ALTER TABLE p ALTER n TYPE bigint USING n * 2",
    "BEGIN; ALTER TABLE t DROP n; ALTER TABLE t ADD n int; COMMIT",
    _SWAP,
    f"{_SWAP}; {_SWAP}",
    f"BEGIN; {_SWAP}; COMMIT; BEGIN; {_SWAP}; COMMIT",
    "ALTER TABLE t RENAME note TO remark; ALTER TABLE t RENAME remark TO note",
    "ALTER TABLE p RENAME note TO remark; ALTER TABLE p RENAME remark TO note",
    "ALTER TABLE t DROP n; ALTER TABLE t ADD n int; ALTER TABLE t RENAME n TO c",
    "ALTER TABLE t DROP n; ALTER TABLE t RENAME other TO n; ALTER TABLE t RENAME n TO c",
    "ALTER TABLE t RENAME n TO x; ALTER TABLE t ADD n int; ALTER TABLE t RENAME n TO y",
    "ALTER TABLE t ADD c uuid DEFAULT gen_random_uuid(); ALTER TABLE t ALTER c DROP DEFAULT",
    "ALTER TYPE feeling RENAME VALUE 'sad' TO 'unhappy'",
    "ALTER TYPE feeling RENAME VALUE 'sad' TO 'unhappy'; ALTER TYPE feeling RENAME VALUE 'unhappy' TO 'sad'",
]
ROWS = [
    "ALTER TABLE t RENAME TO u; ALTER TABLE u RENAME TO t",
    "ALTER TABLE t SET SCHEMA aside; ALTER TABLE aside.t SET SCHEMA shapes",
    "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY)",
    _ATTACH,
    f"BEGIN; INSERT INTO p3 VALUES (21, 1, 'c'); {_ATTACH}; COMMIT",
    "BEGIN; CREATE TABLE p4 (LIKE p); INSERT INTO p4 VALUES (31, 1, 'd'); "
    "ALTER TABLE p ATTACH PARTITION p4 FOR VALUES FROM (30) TO (40); COMMIT",
    "ALTER TABLE p DETACH PARTITION p2",
    "ALTER TABLE p DETACH PARTITION p1; DELETE FROM p1; ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10)",
    "DROP TABLE p2",
    "TRUNCATE p1",
    "ALTER TABLE p1 SET UNLOGGED; ALTER TABLE p1 SET LOGGED",
    "CREATE UNLOGGED TABLE p4 PARTITION OF p FOR VALUES FROM (30) TO (40); ALTER TABLE p4 SET LOGGED",
    # It cannot be distinguished from TRUNCATE.
    "VACUUM FULL p1",
]


@pytest.mark.parametrize(
    ("statements", "change"),
    [
        *[(each, None) for each in NOTHING],
        *[(each, SilentChange.VALUES) for each in VALUES],
        *[(each, SilentChange.ROWS) for each in ROWS],
    ],
)
def test_the_catalogue_shows_what_statements_did_to_rows(
    postgres_server: Postgres, statements: str, change: SilentChange | None
) -> None:
    names = ["shapes.t", "shapes.p"]
    with psycopg.connect(postgres_server.addresses.postgres(), autocommit=True) as connection:
        for statement in _MADE:
            connection.execute(statement.encode())
        before = shapes_of(connection, names)
        assert before.keys() == {*names}
        assert shapes_of(connection, names) == before
        for statement in statements.split("; "):
            connection.execute(statement.encode())
        now = shapes_of(connection, names)
    assert {silent_change(before[name], now[name]) for name in names} == {None, change}


def test_the_catalogue_shows_that_a_schema_had_another_name(postgres_server: Postgres) -> None:
    names = ["shapes.t", "shapes.p"]
    with psycopg.connect(postgres_server.addresses.postgres(), autocommit=True) as connection:
        for statement in _MADE:
            connection.execute(statement.encode())
        before = shapes_of(connection, names)
        connection.execute("ALTER SCHEMA shapes RENAME TO renamed")
        connection.execute("ALTER SCHEMA renamed RENAME TO shapes")
        now = shapes_of(connection, names)
    assert {silent_change(before[name], now[name]) for name in names} == {SilentChange.ROWS}
