"""Operations on a real PostgreSQL: tables, columns, keys and rights that lakehold finds, publications, unreachable servers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg.pq import ExecStatus
from tenacity import stop_after_attempt

from lakehold.definitions import ConnectionType
from lakehold.errors import UpstreamRefused, UpstreamUnavailable
from lakehold.servers import HOST
from lakehold.stack.parts.postgres import Postgres
from lakehold.upstream.database import Names
from lakehold.upstream.differences.lost_values import lossy_columns
from lakehold.upstream.found.columns import FoundColumn, FoundType, TypeKind
from lakehold.upstream.found.found import OF_DOTTED_SCHEMA, PLAIN, UNLOGGED, FoundRelation
from lakehold.upstream.found.values import LostValues
from lakehold.upstream.plan.capture_steps import (
    ChangePublication,
    CompletePublication,
    CreatePublication,
    CreateSignalTable,
    DropSignalTable,
    DropSlot,
)
from lakehold.upstream.postgres import database as postgres
from lakehold.upstream.postgres.database import PostgresUpstream
from lakehold.upstream.wanted.connector_config import Login
from tests.catalog_servers import postgres_server as postgres_server  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = pytest.mark.stack

_TIMEOUT_S = 5.0


@pytest.fixture
def login(postgres_server: Postgres) -> Login:
    info = psycopg.conninfo.conninfo_to_dict(postgres_server.addresses.postgres())
    return Login(HOST, postgres_server.port, str(info["user"]), str(info["password"]), str(info["dbname"]))


@pytest.mark.parametrize(
    ("changed", "code", "message", "detail"),
    [
        (
            {"password": "x"},
            "database-denied",
            'rejects the login of user "lakehold"',
            "Password authentication failed",
        ),
        ({"password": ""}, "database-denied", 'rejects the login of user "lakehold"', "no password supplied"),
        ({"user": "nobody"}, "database-denied", 'rejects the login of user "nobody"', "Password authentication failed"),
        ({"database": "none"}, "database-missing", 'has no database "none"', 'Database "none" does not exist.'),
        ({"port": 1}, "database-unavailable", "does not answer", "Connection refused."),
    ],
)
def test_the_causes_of_a_refused_login_are_distinguished(
    login: Login, changed: dict[str, Any], code: str, message: str, detail: str
) -> None:
    with pytest.raises(UpstreamUnavailable) as refusal:
        PostgresUpstream(replace(login, **changed), _TIMEOUT_S).members("p")
    assert refusal.value.code == code
    assert message in refusal.value.message
    assert detail in refusal.value.detail
    assert not set("\t\n") & set(refusal.value.detail)


def test_the_relation_under_a_name_is_found(postgres_server: Postgres, login: Login) -> None:
    with psycopg.connect(postgres_server.addresses.postgres()) as connection:
        connection.execute("CREATE SCHEMA found")
        connection.execute('CREATE TABLE found.orders (id int PRIMARY KEY, "Total" int)')
        connection.execute('CREATE VIEW found.paid AS SELECT id, "Total" FROM found.orders')
        connection.execute("CREATE MATERIALIZED VIEW found.sums AS SELECT count(*) AS n FROM found.orders")
        connection.execute("CREATE TABLE found.parts (id int) PARTITION BY RANGE (id)")
    names = ["found.orders", "found.paid", "found.sums", "found.parts", "found.orders_pkey", "found.none"]
    assert PostgresUpstream(login, _TIMEOUT_S).relations(names) == {
        "found.orders": FoundRelation(PLAIN),
        "found.paid": FoundRelation("view"),
        "found.sums": FoundRelation("materialized view"),
        "found.parts": FoundRelation(PLAIN),
    }


def test_columns_are_found_in_order_with_the_types_below_their_domains(postgres_server: Postgres, login: Login) -> None:
    with psycopg.connect(postgres_server.addresses.postgres()) as connection:
        for statement in (
            "CREATE SCHEMA c",
            "CREATE TYPE c.mood AS ENUM ('so so')",
            "CREATE TYPE c.pair AS (a int, b text)",
            "CREATE DOMAIN c.cents AS numeric(12, 2)",
            "CREATE DOMAIN c.price AS c.cents CHECK (VALUE > 0)",
            "CREATE DOMAIN c.scores AS int[]",
            "CREATE TABLE c.wide (gone int, b numeric(5, -2) NOT NULL, a c.price, moods c.mood[][], pair c.pair, "
            "scores c.scores, prices c.price[], vector oidvector, spans int4multirange DEFAULT '{}', "
            "twice int GENERATED ALWAYS AS (1) STORED, PRIMARY KEY (b))",
            "ALTER TABLE c.wide DROP COLUMN gone",
            "CREATE TABLE c.other (id int)",
        ):
            connection.execute(statement.encode())
    found = PostgresUpstream(login, _TIMEOUT_S).columns(["c.wide", "c.none", "c.other"])
    assert [column.number for column in found["c.wide"]] == [2, 3, 4, 5, 6, 7, 8, 9, 10], "after the dropped one"
    assert "".join(column.storage for column in found["c.wide"]) == "mmxxxxpxp"
    assert {table: tuple(replace(column, number=0, storage="p") for column in of) for table, of in found.items()} == {
        "c.other": (FoundColumn("id", "integer", FoundType("int4", "integer")),),
        "c.wide": (
            FoundColumn("b", "numeric(5,-2)", FoundType("numeric", "numeric(5,-2)"), is_nullable=False, is_key=True),
            FoundColumn("a", "c.price", FoundType("numeric", "numeric(12,2)"), domain="price"),
            FoundColumn("moods", "c.mood[]", FoundType("mood", "c.mood", TypeKind.ENUM), is_array=True, dimensions=2),
            FoundColumn("pair", "c.pair", FoundType("pair", "c.pair", TypeKind.COMPOSITE)),
            FoundColumn(
                "scores", "c.scores", FoundType("int4", "integer"), is_array=True, dimensions=1, domain="scores"
            ),
            FoundColumn(
                "prices", "c.price[]", FoundType("price", "c.price", TypeKind.DOMAIN), is_array=True, dimensions=1
            ),
            FoundColumn("vector", "oidvector", FoundType("oidvector", "oidvector")),
            FoundColumn(
                "spans",
                "int4multirange",
                FoundType("int4multirange", "int4multirange", TypeKind.MULTIRANGE),
                has_default=True,
            ),
            FoundColumn("twice", "integer", FoundType("int4", "integer"), is_generated=True),
        ),
    }
    assert found["c.wide"][0].type.arguments == (5, -2)


def test_the_key_of_a_table_is_the_primary_key_or_the_unique_index_that_debezium_takes(
    postgres_server: Postgres, login: Login
) -> None:
    keys = {
        "primary": ("PRIMARY KEY (b, a)", "ab"),
        "including": ("PRIMARY KEY (a) INCLUDE (b)", "a"),
        "indexed": ("UNIQUE (a, b)", "ab"),
        "nullable": ("UNIQUE (a, c)", ""),
        "of_some": ("", ""),
        "of_values": ("", ""),
        "shadowed": ("CONSTRAINT z1 UNIQUE (a), CONSTRAINT y1 UNIQUE (c)", ""),
        "first": ("CONSTRAINT y2 UNIQUE (a), CONSTRAINT z2 UNIQUE (c)", "a"),
        "deferrable": ("PRIMARY KEY (b, a) DEFERRABLE", ""),
        "deferred": ("UNIQUE (a) DEFERRABLE INITIALLY DEFERRED", ""),
        "besides": ("PRIMARY KEY (a), UNIQUE (b) DEFERRABLE", "a"),
        "none": ("", ""),
    }
    with psycopg.connect(postgres_server.addresses.postgres()) as connection:
        connection.execute("CREATE SCHEMA k")
        for name, (key, _) in keys.items():
            listed = f", {key}" if key else ""
            create = f"CREATE TABLE k.{name} (gone int, a int NOT NULL, b int NOT NULL, c int{listed})"
            connection.execute(create.encode())
        connection.execute("CREATE UNIQUE INDEX ON k.of_some (a) WHERE b > 0")
        connection.execute("CREATE UNIQUE INDEX ON k.of_values (a, (b + 1))")
    upstream, names = PostgresUpstream(login, _TIMEOUT_S), [f"k.{name}" for name in keys]
    found = upstream.columns(names)
    assert {name: "".join(c.name for c in found[name] if c.is_key) for name in names} == {
        f"k.{name}": columns for name, (_, columns) in keys.items()
    }
    database, _ = upstream.inspect(Names("p", "s", "lakehold_signals.t"), "id", names)
    assert {name: database.tables[name].has_key for name in names} == {
        f"k.{name}": bool(columns) for name, (_, columns) in keys.items()
    }
    deferrable = {name: database.tables[name].deferrable_key for name in names if database.tables[name].deferrable_key}
    assert deferrable == {"k.deferrable": ("a", "b"), "k.deferred": ("a",)}
    logged = {name for name in names if database.tables[name].replica_identity == "d"}
    assert logged == {"k.primary", "k.including", "k.besides"}


def test_the_right_of_the_user_to_read_a_table_is_found(postgres_server: Postgres, login: Login) -> None:
    with psycopg.connect(postgres_server.addresses.postgres()) as connection:
        connection.execute("CREATE ROLE reads LOGIN PASSWORD 'x'")
        connection.execute("CREATE SCHEMA closed")
        for table in ("public.may", "public.may_not", "closed.may"):
            name = psycopg.sql.Identifier(*table.split("."))
            connection.execute(psycopg.sql.SQL("CREATE TABLE {} (id int PRIMARY KEY)").format(name))
        connection.execute("GRANT SELECT ON public.may, closed.may TO reads")
    upstream = PostgresUpstream(replace(login, user="reads", password="x"), _TIMEOUT_S)
    found = upstream.relations(["public.may", "public.may_not", "closed.may"])
    assert {name for name, relation in found.items() if relation.may_read} == {"public.may"}


def test_the_kind_and_the_partitioned_root_of_a_table_are_found(postgres_server: Postgres, login: Login) -> None:
    with psycopg.connect(postgres_server.addresses.postgres()) as connection:
        connection.execute("CREATE SCHEMA kinds")
        connection.execute("CREATE UNLOGGED TABLE kinds.fast (id int PRIMARY KEY)")
        connection.execute('CREATE SCHEMA "kinds.odd"')
        connection.execute('CREATE TABLE "kinds.odd".t (id int PRIMARY KEY)')
        connection.execute("CREATE TABLE kinds.root (id int PRIMARY KEY) PARTITION BY RANGE (id)")
        connection.execute(
            "CREATE TABLE kinds.middle PARTITION OF kinds.root FOR VALUES FROM (0) TO (9) PARTITION BY RANGE (id)"
        )
        connection.execute("CREATE TABLE kinds.leaf PARTITION OF kinds.middle FOR VALUES FROM (0) TO (9)")
    upstream = PostgresUpstream(login, _TIMEOUT_S)
    found = upstream.relations(["kinds.fast", "kinds.odd.t", "kinds.leaf"])
    assert {name: relation.kind for name, relation in found.items()} == {
        "kinds.fast": UNLOGGED,
        "kinds.odd.t": OF_DOTTED_SCHEMA,
        "kinds.leaf": PLAIN,
    }
    database, _ = upstream.inspect(Names("p", "s", "lakehold_signals.of_s"), "s1", ["kinds.root", "kinds.leaf"])
    assert {name: set(table.ancestors) for name, table in database.tables.items()} == {
        "kinds.root": set(),
        "kinds.leaf": {"kinds.root", "kinds.middle"},
    }


def test_a_table_joins_and_leaves_a_publication_without_its_heirs(postgres_server: Postgres, login: Login) -> None:
    with psycopg.connect(postgres_server.addresses.postgres()) as connection:
        connection.execute("CREATE SCHEMA heirs")
        connection.execute("CREATE TABLE heirs.parent (id int PRIMARY KEY)")
        connection.execute("CREATE TABLE heirs.child () INHERITS (heirs.parent)")
        connection.execute("CREATE TABLE heirs.other () INHERITS (heirs.parent)")
    upstream = PostgresUpstream(login, _TIMEOUT_S)
    database, _ = upstream.inspect(Names("p", "s", "lakehold_signals.of_s"), "s1", ["heirs.parent", "heirs.child"])
    heirs = {name: table.heirs for name, table in database.tables.items()}
    assert heirs == {"heirs.parent": ("heirs.child", "heirs.other"), "heirs.child": ()}
    upstream.apply(CreatePublication("heirs", ("heirs.child",), "s1"))
    upstream.apply(ChangePublication("heirs", ("heirs.parent",)))
    assert upstream.members("heirs").keys() == {"heirs.child", "heirs.parent"}
    upstream.apply(CompletePublication("heirs", ("heirs.parent",)))
    assert upstream.members("heirs").keys() == {"heirs.child", "heirs.parent"}
    upstream.apply(ChangePublication("heirs", (), ("heirs.parent",)))
    assert upstream.members("heirs").keys() == {"heirs.child"}
    with pytest.raises(UpstreamRefused, match="refused a change"):
        upstream.apply(ChangePublication("heirs", ("heirs.none",)))


_LOST = {
    "day date": ["'0001-12-31 BC'", "'1582-10-05'", "'1582-10-14'"],
    "birth v.day": ["'0044-03-15 BC'"],
    "bare numeric": ["'NaN'", "'Infinity'", "'-Infinity'"],
    "cents numeric(12, 2)": ["'NaN'"],
    "rate v.rate": ["'NaN'"],
    "numbers int[]": ["'{{1,2},{3,4}}'"],
    "scores v.scores": ["'{{1}}'"],
    "texts text[]": ["'{{a}}'"],
    "moods v.mood[]": ["'{so so,NULL}'", "'{{so so}}'"],
    "pairs v.pair[]": ["ARRAY[NULL::v.pair]", "ARRAY[[ROW(1, 'x')::v.pair]]"],
    "paths jsonpath[]": ["ARRAY[NULL::jsonpath]"],
    "rates v.rate[]": ["'{1,NULL}'"],
    "amounts numeric[]": ["'{1,NaN}'", "'{{1,2}}'"],
    "days date[]": ["'{2026-01-01,1582-10-10}'", "'{0044-03-15 BC}'"],
    "moments timestamp[]": ["'{1582-10-14 23:59:59}'"],
    "instants timestamptz[]": ["'{-infinity}'", "'{0044-03-15 BC}'", "'{1582-10-05 00:00+00}'"],
    "clocks time[]": ["'{24:00}'", "'{12:00:00.000001}'"],
    "took interval": [],  # PostgreSQL 17 and later have infinite ones.
    '"${env:HOME}" numeric': ["'NaN'"],
    '"a ""b"" {0} 100% c" int[]': ["'{{1}}'"],
}
"""Values that Debezium changes when it sends them."""
_SENT = {
    "day date": ["'0001-01-01'", "'1582-10-04'", "'1582-10-15'", "'infinity'", "'-infinity'", "NULL"],
    "bare numeric": ["1e1000", "-0.1"],
    "numbers int[]": ["'{}'", "'{1,NULL}'", "'[5:6]={1,2}'"],
    "texts text[]": ["ARRAY['NULL', '', NULL]"],
    "moods v.mood[]": ["'{so so}'", "'{}'"],
    "pairs v.pair[]": ["ARRAY[ROW(NULL, NULL)::v.pair]"],
    "amounts numeric[]": ["'{1,NULL}'"],
    "days date[]": ["'{0001-01-01,1582-10-04,1582-10-15,infinity,-infinity,NULL}'"],
    "moments timestamp[]": ["'{1582-10-15,infinity,-infinity}'"],
    "instants timestamptz[]": ["'{0001-01-01 00:00+00,1500-01-01,1582-10-15 00:00+00,infinity}'"],
    "clocks time[]": ["'{00:00,23:59:59.999,NULL}'"],
    "took interval": ["'178000000 years'", "'-178000000 years'"],
}


def _fill(connection: psycopg.Connection[Any], table: str, rows: dict[str, list[str]]) -> None:
    connection.execute(f"CREATE TABLE {table} ({', '.join(_LOST)})".encode())
    for column, values in rows.items():
        name = column.rpartition(" ")[0] if column.startswith('"') else column.split()[0]
        for value in values:
            connection.execute(f"INSERT INTO {table} ({name}) VALUES ({value})".encode())


def _lost_values(upstream: PostgresUpstream, *tables: str) -> dict[str, LostValues]:
    return upstream.lost_values(lossy_columns(tables, upstream.columns(tables), ConnectionType.POSTGRES))


def _lossy(lost: LostValues) -> set[tuple[str, str]]:
    return {(each.column.name, each.loss.what) for each in lost.columns}


def test_values_that_debezium_changes_are_found_in_the_rows(postgres_server: Postgres, login: Login) -> None:
    with psycopg.connect(postgres_server.addresses.postgres()) as connection:
        for statement in (
            "CREATE SCHEMA v",
            "CREATE TYPE v.mood AS ENUM ('so so')",
            "CREATE TYPE v.pair AS (a int, b text)",
            "CREATE DOMAIN v.day AS date",
            "CREATE DOMAIN v.rate AS numeric",
            "CREATE DOMAIN v.scores AS int[]",
            "CREATE TABLE v.plain (id int PRIMARY KEY, body text)",
        ):
            connection.execute(statement.encode())
        _fill(connection, "v.empty", {})
        _fill(connection, "v.sent", _SENT)
        cases = [(column, value) for column, values in _LOST.items() for value in values]
        for number, (column, value) in enumerate(cases):
            _fill(connection, f"v.lost_{number}", {**_SENT, column: [*_SENT.get(column, []), value]})
    upstream = PostgresUpstream(login, _TIMEOUT_S)
    assert _lost_values(upstream, "v.empty", "v.sent", "v.plain") == {
        "v.empty": LostValues(()),
        "v.sent": LostValues(()),
    }
    found = _lost_values(upstream, *(f"v.lost_{number}" for number in range(len(cases))))
    names = [
        "${env:HOME}" if "$" in column else 'a "b" {0} 100% c' if '"' in column else column.split()[0]
        for column, _ in cases
    ]
    assert [{name for name, _ in _lossy(lost)} for lost in found.values()] == [{name} for name in names]
    nulls, dimensions = (
        {what for _, what in _lossy(found[f"v.lost_{number}"])}
        for number in (cases.index(("moods v.mood[]", value)) for value in _LOST["moods v.mood[]"])
    )
    assert nulls == {"an array that holds a null comes as null"}
    assert dimensions == {"an array of several dimensions comes as nulls, or its row is an error"}


def test_a_column_with_a_not_null_domain_is_not_null(postgres_server: Postgres, login: Login) -> None:
    with psycopg.connect(postgres_server.addresses.postgres()) as connection:
        connection.execute("CREATE DOMAIN given AS numeric NOT NULL")
        connection.execute("CREATE TABLE strict (id int, n given)")
        connection.execute("INSERT INTO strict VALUES (1, 'NaN')")
    (lossy,) = _lost_values(PostgresUpstream(login, _TIMEOUT_S), "public.strict")["public.strict"].columns
    assert (lossy.column.name, lossy.stops) == ("n", True)


def test_a_search_that_takes_too_long_becomes_a_query_and_leaves_time_for_other_tables(
    postgres_server: Postgres, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_SEARCHED_WITHIN_S", 1.0)
    upstream = PostgresUpstream(login, _TIMEOUT_S)
    with psycopg.connect(postgres_server.addresses.postgres()) as connection:
        for table in ("large", "small"):
            connection.execute(f'CREATE TABLE {table} (id int, "N 1" numeric NOT NULL)'.encode())
            connection.execute(f"INSERT INTO {table} VALUES (1, 'NaN')".encode())
        connection.commit()
        connection.execute("LOCK TABLE large IN ACCESS EXCLUSIVE MODE")
        found = _lost_values(upstream, "public.large", "public.small")
        connection.rollback()
        query = found["public.large"].query
        assert query == 'SELECT bool_or("N 1" - "N 1" <> 0) FROM "public"."large"'
        assert connection.execute(query.encode()).fetchone() == (True,)
    assert {name: (_lossy(lost), bool(lost.query)) for name, lost in found.items()} == {
        "public.large": ({("N 1", "NaN and Infinity come as null")}, True),
        "public.small": ({("N 1", "NaN and Infinity come as null")}, False),
    }
    assert _lost_values(upstream, "public.large")["public.large"].query == ""


def test_settings_by_which_the_database_writes_values_are_found(login: Login) -> None:
    database, _ = PostgresUpstream(login, _TIMEOUT_S).inspect(Names("p", "s", "lakehold_signals.t"), "id", [])
    assert (database.money, database.bytea_output) == ("$1,234.50", "hex")


def test_a_signal_table_keeps_the_time_of_the_last_inspection(login: Login) -> None:
    upstream, table = PostgresUpstream(login, _TIMEOUT_S), "lakehold_signals.of_seen"

    def kept() -> int | None:
        _, signals = upstream.inspect(Names("p", "s", table), "id", [])
        return signals.table.seen_ms if signals.table is not None else None

    assert upstream.record_seen(table, 5) is None
    upstream.apply(CreateSignalTable(table, None))
    for at_ms in (5, 7):
        assert upstream.record_seen(table, at_ms) == at_ms
        assert kept() == at_ms
    assert upstream.record_seen(table, 6) == 7, "a process that was paused does not replace a later time"
    assert kept() == 7
    upstream.apply(DropSignalTable(table))


def test_a_slot_is_dropped_once_its_reader_has_left_and_refused_while_it_stays(
    postgres_server: Postgres, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, upstream = postgres_server.addresses.postgres(), PostgresUpstream(login, _TIMEOUT_S)
    monkeypatch.setattr(postgres, "UNTIL_RELEASED", postgres.UNTIL_RELEASED.copy(stop=stop_after_attempt(2)))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('read', 'pgoutput')")
        with closing(psycopg.connect(address, autocommit=True, replication="database")) as reader:
            options = b"(proto_version '1', publication_names 'p')"
            assert (
                reader.pgconn.exec_(b"START_REPLICATION SLOT read LOGICAL 0/0 " + options).status
                == ExecStatus.COPY_BOTH
            )
            with pytest.raises(UpstreamUnavailable) as refusal:
                upstream.apply(DropSlot("read"))
            assert (refusal.value.code, refusal.value.message) == ("slot-in-use", 'replication slot "read" is in use')
        monkeypatch.undo()
        upstream.apply(DropSlot("read"))
        assert connection.execute("SELECT FROM pg_replication_slots WHERE slot_name = 'read'").fetchone() is None
