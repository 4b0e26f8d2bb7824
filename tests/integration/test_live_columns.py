"""Columns of a captured table have the documented types and the database's values, or are reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from lakehold.definitions import ConnectionType
from lakehold.errors import LakeholdError, UpstreamError
from lakehold.lake import Lake
from lakehold.servers import HOST
from lakehold.stack import StackAddresses
from lakehold.status import status_of
from lakehold.upstream.found.columns import FoundColumn
from lakehold.upstream.found.values import LossyColumn, LostValues
from lakehold.upstream.mysql.database import MysqlUpstream
from lakehold.upstream.postgres.database import PostgresUpstream
from lakehold.upstream.types.captured_columns import columns_of
from lakehold.upstream.wanted.connector_config import Login
from tests.captured_shop import Shop
from tests.captured_types import IN_POSTGRES, MARIADB, POSTGRES, CapturedColumn
from tests.conftest import LakeFactory
from tests.live_source import execute
from tests.mariadb_server import PASSWORD, MariaDb
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name
from tests.stack_fixtures import SourceDatabase
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_TIMEOUT_S = 5.0
_OUT = [column for column in POSTGRES if column.lake_type is None]


def _created(table: str, columns: Sequence[CapturedColumn]) -> str:
    return f"CREATE TABLE {table} (id int PRIMARY KEY, {', '.join(f'{c.name} {c.type}' for c in columns)})"


def _inserted(table: str, columns: Sequence[CapturedColumn], row: int) -> str:
    given = [c for c in columns if c.value]
    return f"INSERT INTO {table} (id, {', '.join(c.name for c in given)}) VALUES ({row}, {', '.join(c.value for c in given)})"


def _rows(lake: Lake, columns: Sequence[CapturedColumn]) -> list[tuple[str, ...]]:
    shown = ", ".join(f"CAST({c.in_lake.format(c.name)} AS STRING)" for c in columns if c.lake_type)
    return [
        tuple(row) for row in lake.sql(f"SELECT {shown} FROM {lake.settings.catalog_name}.shop.wide ORDER BY id").rows
    ]


def _follow(lake: Lake, wanted: int) -> None:
    """Ingest until the table has `wanted` rows and no errors."""

    def is_there() -> bool:
        for report in lake.ingest("shop"):
            for error in report.stopped.values():
                raise error
        table = lake.tables.table_state("shop.wide")
        return (
            table is not None and len(lake.sql(f"SELECT id FROM {lake.settings.catalog_name}.shop.wide").rows) == wanted
        )

    wait_for(is_there, f"{wanted} rows")


def _unreported(names: Sequence[str], reported: Sequence[str]) -> list[str]:
    return [name for name in names if not any(name in line for line in reported)]


def _assert_as_declared(lake: Lake, found: Sequence[FoundColumn], database: ConnectionType) -> None:
    """Compare the table's columns with those that the database declares."""
    table = dict(lake.spark.table(f"{lake.settings.catalog_name}.shop.wide").dtypes)
    assert table == {c.name: c.spark_type.replace("`", "") for c in columns_of(found, database)}


def _assert_equal(names: Sequence[str], found: Sequence[Sequence[str]], wanted: Sequence[str | None]) -> None:
    for row in found:
        assert {n: v for n, v in zip(names, row, strict=True) if v != dict(zip(names, wanted, strict=True))[n]} == {}


@pytest.mark.parametrize(
    "value_format",
    ["FORMAT JSON", pytest.param("FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry", marks=pytest.mark.soak)],
)
def test_columns_of_postgres_are_as_declared_and_skipped_ones_are_reported(
    make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch, value_format: str
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(make_lake, database, value_format)
    generated = CapturedColumn("twice", "int GENERATED ALWAYS AS (id * 2) STORED", "", None)
    columns = (*POSTGRES, generated)
    execute(database, [*IN_POSTGRES, _created("wide", columns), _inserted("wide", columns, 1)])
    out = [f"column public.wide.{c.name} (" for c in (*_OUT, generated)]

    explained = shop.lake.sql(f"EXPLAIN {shop.creating('wide')}").notices
    assert _unreported(out, explained) == []
    notices = shop.lake.sql(shop.creating("wide")).notices
    assert _unreported(out, notices) == []
    assert not any("not sent as they are" in line for line in notices), "no row has such values"
    _follow(shop.lake, 1)
    execute(database, [_inserted("wide", columns, 2)])
    _follow(shop.lake, 2)

    address = database.addresses
    login = Login(address.postgres_host, address.postgres_port, shop.user, address.postgres_password, database.name)
    found = PostgresUpstream(login, _TIMEOUT_S).columns(["public.wide"])["public.wide"]
    _assert_as_declared(shop.lake, found, ConnectionType.POSTGRES)
    types = dict(shop.lake.spark.table(f"{shop.lake.settings.catalog_name}.shop.wide").dtypes)
    assert {c.name: c.lake_type for c in POSTGRES if c.lake_type} == {n: t for n, t in types.items() if n != "id"}
    is_avro = "AVRO" in value_format
    assert any("public.wide.defaulted: a null comes as the column's default" in line for line in notices) == is_avro
    shown = [c for c in POSTGRES if c.lake_type and not (is_avro and c.name == "defaulted")]
    (wanted,) = shop.query(f"SELECT {', '.join(c.in_database.format(c.name) for c in shown)} FROM wide WHERE id = 1")
    _assert_equal([c.name for c in shown], _rows(shop.lake, shown), wanted)
    kept = status_of(shop.lake).notices
    assert (_unreported(out, kept), len(kept)) == ([], len(out))
    shop.close()


_LOSSY = "id int PRIMARY KEY, n int, note text, born date, ratio numeric, labels text[], moments timestamptz[]"


def _errors(lake: Lake) -> int:
    query = "SELECT count(*) FROM mz_catalog.mz_source_errors WHERE healed_at IS NULL"
    return int(lake.sql(query).rows[0][0])


def test_values_that_would_be_lost_are_reported_or_refused_where_they_stop_the_connector(
    make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(make_lake, database)
    shop.upstream("orders", rows=5)
    for table, body in (("clean", _LOSSY), ("lossy", _LOSSY), ("strict", f'{_LOSSY}, "Rate" numeric NOT NULL')):
        execute(database, [f"CREATE TABLE {table} ({body})", f"ALTER TABLE {table} REPLICA IDENTITY FULL"])
    database.execute(
        "INSERT INTO clean VALUES (1, 0, 'a', '1582-10-15', 1.5, '{a,NULL}', '{infinity}')",
        "INSERT INTO lossy VALUES (1, 0, 'a', '0044-03-15 BC', 'NaN'), (2, 0, 'b', '1582-10-10', 1)",
        "INSERT INTO lossy (id, labels) VALUES (3, '{{a,b},{c,d}}')",
        "INSERT INTO lossy (id, moments) VALUES (4, '{-infinity}')",
        """INSERT INTO strict (id, "Rate") VALUES (1, 'NaN'), (2, 1)""",
    )
    calls: list[list[str]] = []
    lost_values = PostgresUpstream.lost_values

    def counted(upstream: PostgresUpstream, lossy: Mapping[str, Sequence[LossyColumn]]) -> dict[str, LostValues]:
        calls.append([*lossy])
        return lost_values(upstream, lossy)

    monkeypatch.setattr(PostgresUpstream, "lost_values", counted)
    assert shop.lake.sql(shop.creating("orders")).notices == ()
    shop.follow_until_equal("orders")
    assert calls == [], "no column of the table loses anything"

    before = shop.topics()
    for statement in (shop.creating("strict"), f"BEGIN; {shop.creating('clean')}; {shop.creating('strict')}; COMMIT"):
        with pytest.raises(UpstreamError, match=r'column "Rate" of table "public\.strict" holds values') as refusal:
            shop.lake.sql(statement)
        assert refusal.value.code == "value-unsendable"
    assert (shop.topics(), shop.steps("ALTER SOURCE shop REPAIR")) == (before, [])
    calls.clear()

    named = "public.lossy.{} holds values that are not sent as they are: {}"
    reported = [
        f"column {named.format('born (date)', 'in a snapshot dates before year 1')}",
        f"column {named.format('ratio (numeric)', 'NaN and Infinity come as null')}",
        f"column {named.format('labels (text[])', 'an array of several dimensions')}",
        f"column {named.format('moments (timestamp with time zone[])', 'times before year 1')}",
    ]
    for statement in (f"EXPLAIN {shop.creating('lossy')}", shop.creating("lossy")):
        notices = shop.lake.sql(statement).notices
        assert [notice.startswith(each) for notice, each in zip(notices, reported, strict=True)] == [True] * 4
    assert calls == [["public.lossy"]] * 2, "each statement searches the rows once, however often it plans"
    assert shop.lake.sql(f"EXPLAIN {shop.creating('clean')}").notices == ()
    assert shop.lake.sql(shop.creating("clean")).notices == ()
    hint = refusal.value.hint.partition(" Or let")[0]
    assert hint == 'UPDATE public.strict SET "Rate" = … WHERE "Rate" - "Rate" <> 0.'
    execute(database, [hint.replace("…", "0").removesuffix(".")])
    assert shop.lake.sql(shop.creating("strict")).notices == ()
    shop.follow_until_equal("clean", "strict", "orders")
    wait_for(lambda: shop.lake.ingest("shop") is not None and _errors(shop.lake) == 2, "two rows are errors")
    assert [row[0] for row in shop.rows("lossy")] == [1, 2]
    assert status_of(shop.lake).notices == ()
    shop.close()


def test_columns_of_mariadb_are_as_declared(
    make_lake: LakeFactory, stack: StackAddresses, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", PASSWORD)
    lake = make_lake()
    lenient = "SET sql_mode = '', time_zone = '+00:00', NAMES utf8mb4"
    mariadb.execute(
        "CREATE DATABASE shop",
        lenient,
        _created("shop.wide", MARIADB),
        _inserted("shop.wide", MARIADB, 1),
        "CREATE TABLE shop.networks (id INT PRIMARY KEY, address INET6)",
        "CREATE TABLE shop.loose (n INT, weight FLOAT)",
        "INSERT INTO shop.loose VALUES (1, 1234567), (2, 0.1)",
    )
    lake.sql(mariadb.declaring(stack, "shop", "columns"))
    with pytest.raises(UpstreamError, match=r'"shop\.networks" .* has a column address of type inet6') as refusal:
        lake.sql("CREATE TABLE shop.networks FROM SOURCE shop (TABLE 'shop.networks') ENVELOPE DEBEZIUM")
    assert refusal.value.code == "upstream-table-unfit"
    creating = "CREATE TABLE {} FROM SOURCE shop (TABLE '{}') ENVELOPE DEBEZIUM".format
    by_n = creating("shop.by_n", "shop.loose").replace("')", "') KEY (n)")
    tables = [creating("shop.wide", "shop.wide"), creating("shop.loose", "shop.loose"), by_n]
    notices = lake.sql("; ".join(["BEGIN", *tables, "COMMIT"])).notices
    assert any(notice.startswith("column shop.wide.token (uuid): ") for notice in notices)
    assert any(notice.startswith("columns shop.wide.single (float), shop.wide.tenth (float)") for notice in notices)
    (notice,) = [notice for notice in notices if "finds rows by them" in notice]
    assert notice.startswith("a snapshot has values of weight (float) in another form than changes, and shop.loose")
    _follow(lake, 1)
    mariadb.execute(lenient, _inserted("shop.wide", MARIADB, 2))
    _follow(lake, 2)

    found = MysqlUpstream(Login(HOST, mariadb.port, "lakehold", PASSWORD), _TIMEOUT_S).columns(["shop.wide"])
    _assert_as_declared(lake, found["shop.wide"], ConnectionType.MARIADB)
    types = dict(lake.spark.table(f"{lake.settings.catalog_name}.shop.wide").dtypes)
    assert {c.name: c.lake_type for c in MARIADB} == {n: t for n, t in types.items() if n != "id"}
    shown = ", ".join(c.in_database.format(c.name) for c in MARIADB)
    for row in (1, 2):
        (wanted,) = mariadb.rows(
            f"SET time_zone = '+00:00', NAMES utf8mb4; SELECT {shown} FROM shop.wide WHERE id = {row}"
        )
        texts = [None if value == "NULL" else value for value in wanted]
        _assert_equal([c.name for c in MARIADB], [_rows(lake, MARIADB)[row - 1]], texts)

    mariadb.execute("UPDATE shop.loose SET weight = weight + 1")
    stopped: dict[str, LakeholdError] = {}

    def is_stopped() -> bool:
        for report in lake.ingest("shop"):
            stopped.update(report.stopped)
        return bool(stopped)

    wait_for(is_stopped, "the table without a key stops")
    assert {table: error.code for table, error in stopped.items()} == {"shop.loose": "row-missing"}
    weights = lake.sql(f"SELECT weight FROM {lake.settings.catalog_name}.shop.by_n ORDER BY n").rows
    assert weights == [(1234568.0,), (1.100000023841858,)]
    lake.sql("DROP SOURCE shop CASCADE")
