"""Tables without a key in a captured PostgreSQL: pgbench's four tables, one of which has none."""

from __future__ import annotations

import pytest

from lakehold.errors import LakeholdError, UpstreamError
from lakehold.status import status_of
from tests.captured_shop import Shop
from tests.captured_shop import shop as shop  # noqa: PLC0414 - pytest finds fixtures by name
from tests.live_source import execute
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

TABLES = {
    "pgbench_branches": "bid int NOT NULL PRIMARY KEY, bbalance int, filler char(88)",
    "pgbench_tellers": "tid int NOT NULL PRIMARY KEY, bid int, tbalance int, filler char(84)",
    "pgbench_accounts": "aid int NOT NULL PRIMARY KEY, bid int, abalance int, filler char(84)",
    "pgbench_history": "tid int, bid int, aid int, delta int, mtime timestamp, filler char(22)",
}
FIRST_ROWS = (
    "INSERT INTO pgbench_branches VALUES (1, 0, NULL)",
    "INSERT INTO pgbench_tellers SELECT i, 1, 0, NULL FROM generate_series(1, 10) i",
    "INSERT INTO pgbench_accounts SELECT i, 1, 0, '' FROM generate_series(1, 500) i",
    "INSERT INTO pgbench_history SELECT 1, 1, i % 3, 0, NULL, NULL FROM generate_series(1, 300) i",
)
TRANSACTION = (
    "UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {aid}",
    "UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {tid}",
    "UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = 1",
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ({tid}, 1, {aid}, {delta}, '2026-11-26 10:00')",
)


def bank(shop: Shop, count: int) -> None:
    """Run pgbench's transactions, of which many add an equal row of the history."""
    for number in range(count):
        values = {"delta": number % 2 - 7, "aid": number % 4 + 1, "tid": number % 2 + 1}
        execute(shop.database, [statement.format(**values) for statement in TRANSACTION])


def follow(shop: Shop, *tables: str) -> None:
    """Ingest until tables of the lake have the rows of the database, each as often."""

    def equal() -> bool:
        for report in shop.lake.ingest("shop"):
            for error in report.stopped.values():
                raise error
        return all(shop.since(table) is not None and rows(shop, table) == wanted(shop, table) for table in tables)

    wait_for(equal, "the lake is equal to the database")


def rows(shop: Shop, table: str) -> list[str]:
    return sorted(map(repr, shop.lake.sql(f"SELECT * FROM {shop.lake.settings.catalog_name}.shop.{table}").rows))


def wanted(shop: Shop, table: str) -> list[str]:
    return sorted(map(repr, shop.query(f"SELECT * FROM {table}")))


@pytest.mark.soak
def test_pgbench(shop: Shop) -> None:
    execute(shop.database, [f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()])
    execute(shop.database, [*FIRST_ROWS])
    keyed = [name for name in TABLES if name != "pgbench_history"]
    execute(shop.database, [f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in keyed])
    for name in keyed:
        shop.lake.sql(shop.creating(name))
    with pytest.raises(UpstreamError) as refused:
        shop.lake.sql(shop.creating("pgbench_history"))
    assert refused.value.code == "replica-identity"
    execute(shop.database, ["UPDATE pgbench_history SET delta = 1 WHERE aid = 2", refused.value.hint.split(";")[0]])
    shop.lake.sql(f"DROP SOURCE shop CASCADE; {shop.creating_source}")
    shop.lake.sql("; ".join(["BEGIN", *map(shop.creating, TABLES), "COMMIT"]))

    bank(shop, 6)
    follow(shop, *TABLES)
    execute(shop.database, ["INSERT INTO pgbench_history SELECT * FROM pgbench_history", "ANALYZE"])
    bank(shop, 6)
    one = "(SELECT ctid FROM pgbench_history WHERE aid = {} LIMIT {})"
    execute(
        shop.database,
        [
            f"DELETE FROM pgbench_history WHERE ctid IN {one.format(2, 7)}",
            f"UPDATE pgbench_history SET filler = 'x' WHERE ctid IN {one.format(1, 5)}",
            f"UPDATE pgbench_history SET aid = 2, delta = 1 WHERE ctid IN {one.format(0, 3)}",
        ],
    )
    follow(shop, *TABLES)
    for _ in range(2):
        shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
        bank(shop, 2)
        follow(shop, *TABLES)


@pytest.mark.soak
def test_a_table_that_joins_and_gets_a_primary_key_later(shop: Shop) -> None:
    shop.upstream("keyed", rows=20)
    shop.lake.sql(shop.creating("keyed"))
    shop.follow_until_equal("keyed")
    execute(
        shop.database,
        [
            "CREATE TABLE late AS SELECT i % 3 AS id, i % 5 AS n, NULL::text AS note FROM generate_series(1, 60) i",
            "ALTER TABLE late REPLICA IDENTITY FULL",
        ],
    )
    (notice,) = shop.lake.sql(shop.creating("late")).notices
    assert "ALTER SOURCE shop RESNAPSHOT" in notice
    execute(shop.database, ["DELETE FROM late WHERE id = 2 AND n = 1"])
    shop.lake.ingest("shop")
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    execute(shop.database, ["INSERT INTO late SELECT * FROM late"])
    follow(shop, "keyed", "late")
    # Its rows stay a multiset when it gets a primary key, and message keys change nothing.
    execute(
        shop.database,
        [
            "DELETE FROM late WHERE ctid NOT IN (SELECT min(ctid) FROM late GROUP BY id, n)",
            "ALTER TABLE late ADD PRIMARY KEY (id, n)",
            "UPDATE late SET n = n + 1000 WHERE id = 1",
            "UPDATE late SET note = 'x' WHERE id = 0",
            "INSERT INTO late VALUES (9, 9, NULL)",
        ],
    )
    follow(shop, "keyed", "late")
    # Nor does missing some changes: a snapshot of the table alone cannot be taken.
    execute(shop.database, ["ALTER PUBLICATION lake DROP TABLE late", "INSERT INTO late VALUES (8, 8, NULL)"])
    shop.reopen()
    shop.lake.ingest("shop")
    assert "late" in shop.publications()["lake"], "lakehold has put it back"
    (notice,) = (notice for notice in status_of(shop.lake).notices if "late" in notice)
    assert "had no primary key when the lake began it, so only ALTER SOURCE shop RESNAPSHOT brings them" in notice
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    follow(shop, "keyed", "late")


def test_a_table_that_loses_its_primary_key_stops_with_a_way_out(shop: Shop) -> None:
    shop.upstream("keyed", "other", rows=20)
    shop.lake.sql("; ".join(["BEGIN", shop.creating("keyed"), shop.creating("other"), "COMMIT"]))
    shop.follow_until_equal("keyed", "other")
    execute(
        shop.database,
        ["ALTER TABLE keyed DROP CONSTRAINT keyed_pkey", "UPDATE keyed SET n = 1", "UPDATE other SET n = 1"],
    )
    stopped: list[LakeholdError] = []

    def is_stopped() -> bool:
        stopped.extend(error for report in shop.lake.ingest("shop") for error in report.stopped.values())
        return bool(stopped)

    wait_for(is_stopped, "the table stops")
    assert stopped[0].code == "key-changed"
    wait_for(lambda: is_stopped() and shop.rows("other") == shop.wanted("other"), "other continues")
    shop.lake.sql("DROP TABLE shop.keyed")
    (notice,) = shop.lake.sql(shop.creating("keyed")).notices
    assert "table public.keyed has no primary key" in notice
    assert "ALTER SOURCE shop RESNAPSHOT" in notice
    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    execute(shop.database, ["INSERT INTO keyed SELECT * FROM keyed WHERE id < 5"])
    follow(shop, "keyed", "other")


def test_a_unique_index_over_nulls_is_no_key(shop: Shop) -> None:
    execute(
        shop.database,
        [
            "CREATE TABLE nulls (x int UNIQUE, v text)",
            "ALTER TABLE nulls REPLICA IDENTITY FULL",
            "INSERT INTO nulls VALUES (NULL, 'a'), (NULL, 'a'), (1, 'b')",
        ],
    )
    shop.lake.sql(shop.creating("nulls"))
    execute(
        shop.database,
        [
            "INSERT INTO nulls VALUES (NULL, 'c'), (2, 'c')",
            "UPDATE nulls SET v = 'z' WHERE x = 1",
            "UPDATE nulls SET x = NULL WHERE x = 2",
            "DELETE FROM nulls WHERE ctid = (SELECT ctid FROM nulls WHERE v = 'a' LIMIT 1)",
        ],
    )
    follow(shop, "nulls")
    execute(shop.database, ["UPDATE nulls SET v = 'y' WHERE v = 'c'", "INSERT INTO nulls VALUES (2, NULL)"])
    follow(shop, "nulls")
    assert shop.lake.verify("shop.nulls").is_equal


def test_rows_that_exchange_a_deferrable_key_all_stay(shop: Shop) -> None:
    execute(
        shop.database,
        [
            "CREATE TABLE steps (pos int PRIMARY KEY DEFERRABLE, what text)",
            "ALTER TABLE steps REPLICA IDENTITY FULL",
            "INSERT INTO steps SELECT i, 'step ' || i FROM generate_series(1, 5) i",
        ],
    )
    (notice,) = shop.lake.sql(shop.creating("steps")).notices
    assert notice.startswith("the key of table public.steps is DEFERRABLE, so shop.steps has no key")
    follow(shop, "steps")
    execute(
        shop.database,
        [
            "UPDATE steps SET pos = pos + 1",
            "UPDATE steps SET pos = CASE pos WHEN 2 THEN 3 ELSE 2 END WHERE pos IN (2, 3)",
            "INSERT INTO steps VALUES (1, 'first')",
            "DELETE FROM steps WHERE pos = 6",
            "UPDATE steps SET what = 'changed' WHERE pos = 4",
        ],
    )
    follow(shop, "steps")
    assert shop.lake.verify("shop.steps").is_equal
    execute(shop.database, ["UPDATE steps SET pos = 6 - pos"])
    follow(shop, "steps")


def test_rows_that_the_key_keeps_from_a_snapshot_of_their_table_alone_come_with_one_of_all_tables(shop: Shop) -> None:
    shop.upstream("orders", rows=5)
    shop.lake.sql(shop.creating("orders"))
    shop.follow_until_equal("orders")
    columns = "id int, n int, note text"
    execute(
        shop.database,
        [
            f"CREATE TABLE tagged ({columns}, tags int[], PRIMARY KEY (tags))",
            f"CREATE TABLE timed ({columns}, at timestamptz, PRIMARY KEY (id, at))",
            "INSERT INTO tagged SELECT i, 0, 'a', ARRAY[i, 1] FROM generate_series(1, 5) i",
            "INSERT INTO timed SELECT i, 0, 'a', now() + i * interval '1 s' FROM generate_series(1, 2000) i",
            *(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in ("tagged", "timed")),
        ],
    )
    shop.lake.sql(f"{shop.creating('tagged')} KEY (id)")
    shop.lake.sql(shop.creating("timed"))
    execute(shop.database, ["UPDATE orders SET n = 1"])
    shop.follow_until_equal("orders")

    def is_failing() -> bool:
        list(shop.lake.ingest("shop"))
        return any("the snapshot of public.timed failed" in notice for notice in status_of(shop.lake).notices)

    wait_for(is_failing, "the snapshot fails")
    notices = status_of(shop.lake).notices
    assert any("With at (timestamp with time zone) in its primary key" in notice for notice in notices)
    assert any("has tags (integer[]) in its primary key" in notice for notice in notices)

    shop.lake.sql("ALTER SOURCE shop RESNAPSHOT")
    shop.follow_until_equal("orders", "tagged", "timed")
    shop.follow_until_nothing_is_reported()
