"""On a real stack, statements refuse tables with colliding column names and tables without a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lakehold.errors import LakeholdError
from lakehold.stack import StackAddresses
from lakehold.status import status_of
from tests.captured_shop import Shop
from tests.conftest import LakeFactory
from tests.live_source import execute
from tests.mariadb_server import PASSWORD, MariaDb
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name
from tests.stack_fixtures import SourceDatabase
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

AVRO = "FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry"


@pytest.fixture
def shop(make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    shop = Shop(make_lake, database, AVRO)
    yield shop
    shop.close()


def _refused(shop: Shop, statement: str) -> LakeholdError:
    with pytest.raises(LakeholdError) as refusal:
        shop.lake.sql(statement)
    with pytest.raises(LakeholdError) as explained:
        shop.lake.sql(f"EXPLAIN {statement}")
    assert str(explained.value) == str(refusal.value)
    assert refusal.value.hint
    return refusal.value


def _all(shop: Shop, table: str) -> list[tuple[Any, ...]]:
    rows = shop.lake.sql(f"SELECT * FROM {shop.lake.settings.catalog_name}.shop.{table}").rows
    return sorted((tuple(row) for row in rows), key=repr)


def test_impossible_tables_are_refused_before_anything_changes_upstream(shop: Shop) -> None:
    shop.upstream("orders", rows=5)
    execute(
        shop.database,
        [
            'CREATE TABLE meets (id int PRIMARY KEY, "a-b" int, a_b int)',
            'CREATE TABLE cases (id int PRIMARY KEY, "Name" text, name text)',
            "CREATE TABLE reserved (id int PRIMARY KEY, _row_id text, v text)",
            "CREATE TABLE history (tid int, bid int, delta int)",
            "CREATE TABLE nulls (x int UNIQUE, v text)",
            'CREATE TABLE empty (id int PRIMARY KEY, "a-b" int)',
            "INSERT INTO reserved VALUES (1, 'r', 'v')",
            "INSERT INTO history VALUES (1, 1, 5), (1, 2, 6)",
            "ALTER TABLE history REPLICA IDENTITY FULL",
            "CREATE TABLE indexed (x int NOT NULL UNIQUE, v text)",
            "ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_x_key",
            "INSERT INTO indexed SELECT i, 'a' FROM generate_series(1, 4) i",
        ],
    )
    refusals = {
        table: _refused(shop, shop.creating(table, "DEBEZIUM UPSERT"))
        for table in ("meets", "cases", "reserved", "history", "nulls")
    }
    assert {table: error.code for table, error in refusals.items()} == {
        "meets": "column-collision",
        "cases": "column-case",
        "reserved": "column-reserved",
        "history": "key-missing",
        "nulls": "key-missing",
    }
    assert 'columns "a-b" and "a_b"' in refusals["meets"].message
    with pytest.raises(LakeholdError) as together:
        shop.lake.sql(f"BEGIN; {shop.creating('orders')}; {shop.creating('history', 'DEBEZIUM UPSERT')}; COMMIT")
    assert together.value.code == "key-missing"
    assert shop.lake.definitions.definitions().tables == {}
    assert (shop.topics(), shop.slots(), shop.publications()) == (set(), 0, {})

    listed = shop.creating("reserved").replace("shop.reserved FROM", "shop.reserved (id INT, v STRING) FROM")
    keyed = f"{shop.creating('history', 'DEBEZIUM UPSERT')} KEY (tid, bid)"
    indexed = shop.creating("indexed", "DEBEZIUM UPSERT")
    empty = shop.creating("empty", "DEBEZIUM UPSERT")
    shop.lake.sql(f"BEGIN; {shop.creating('orders')}; {listed}; {keyed}; {empty}; COMMIT")
    shop.follow_until_equal("orders")
    shop.follow_until_readable("empty")
    state = shop.lake.tables.table_state("shop.empty")
    assert state is not None
    assert [field.name for field in state.schema.fields] == ["id", "a_b"]
    assert _all(shop, "reserved") == [(1, "v")]
    assert _all(shop, "history") == [(1, 1, 5), (1, 2, 6)]

    # A column with a colliding name is added later: it does not stop the source.
    execute(
        shop.database,
        [
            "ALTER TABLE empty ADD COLUMN a_b int",
            "INSERT INTO empty VALUES (1, 2, 3)",
            "UPDATE orders SET n = 7 WHERE id = 1",
        ],
    )
    shop.follow_until_equal("orders")
    shop.reopen()
    shop.follow_until_equal("orders")
    wait_for(lambda: not shop.lake.ingest("shop") or _all(shop, "empty") == [(1, 2)], "the row is in the lake")
    assert _all(shop, "empty") == [(1, 2)]
    (problem,) = status_of(shop.lake).notices
    assert "column public.empty.a_b (integer) is left out" in problem

    # A unique index serves as primary key: the table joins alone, and the index distinguishes its rows.
    shop.lake.sql(indexed)
    shop.follow_until_readable("indexed")
    execute(
        shop.database,
        [
            "UPDATE indexed SET v = 'b' WHERE x = 2",
            "DELETE FROM indexed WHERE x = 3",
            "UPDATE indexed SET x = 5 WHERE x = 4",
        ],
    )

    def equal() -> bool:
        assert not any(report.stopped for report in shop.lake.ingest("shop"))
        return _all(shop, "indexed") == [(1, "a"), (2, "b"), (5, "a")]

    wait_for(equal, "the changes are in the lake")


def test_impossible_tables_of_mariadb_are_refused(
    make_lake: LakeFactory, stack: StackAddresses, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", PASSWORD)
    lake = make_lake()
    mariadb.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.history (tid INT, delta INT)",
        "CREATE TABLE shop.nulls (x INT UNIQUE, v TEXT)",
        "CREATE TABLE shop.reserved (id INT PRIMARY KEY, _pos INT)",
        "CREATE TABLE shop.indexed (x INT NOT NULL UNIQUE, v TEXT)",
        "INSERT INTO shop.indexed VALUES (1, 'a'), (2, 'a'), (3, 'a')",
        "INSERT INTO shop.nulls VALUES (NULL, 'a'), (NULL, 'a'), (1, 'b')",
    )
    lake.sql(mariadb.declaring(stack, "shop", "names"))

    def creating(table: str, envelope: str = "DEBEZIUM") -> str:
        return f"CREATE TABLE shop.{table} FROM SOURCE shop (TABLE 'shop.{table}') ENVELOPE {envelope}"

    codes = {}
    for table in ("history", "nulls", "reserved"):
        with pytest.raises(LakeholdError) as refusal:
            lake.sql(creating(table, "DEBEZIUM UPSERT"))
        codes[table] = refusal.value.code
    assert codes == {"history": "key-missing", "nulls": "key-missing", "reserved": "column-reserved"}
    lake.sql(f"BEGIN; {creating('indexed')}; {creating('nulls')}; COMMIT")
    mariadb.execute("UPDATE shop.indexed SET v = 'b' WHERE x = 2", "DELETE FROM shop.indexed WHERE x = 3")
    mariadb.execute("DELETE FROM shop.nulls WHERE x IS NULL LIMIT 1", "INSERT INTO shop.nulls VALUES (NULL, 'c')")

    def rows(table: str) -> list[tuple[Any, ...]]:
        if lake.tables.table_state(table) is None:
            return []
        return sorted(map(tuple, lake.sql(f"SELECT * FROM {lake.settings.catalog_name}.{table}").rows), key=repr)

    def equal() -> bool:
        assert not any(report.stopped for report in lake.ingest("shop"))
        return (rows("shop.indexed"), rows("shop.nulls")) == (
            [(1, "a"), (2, "b")],
            [(1, "b"), (None, "a"), (None, "c")],
        )

    wait_for(equal, "the changes are in the lake")
    lake.sql("DROP SOURCE shop CASCADE")
