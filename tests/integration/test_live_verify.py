"""A captured table is compared with its PostgreSQL: what somebody corrupted is found, and what only moves is not."""

from __future__ import annotations

import io
import itertools
import json
import re
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import psycopg
import pytest

from lakehold.cli.command_output import JsonOutput, Output, TableOutput
from lakehold.cli.verify import DIFFERENT, EQUAL, NOT_COMPARED, run_verify
from lakehold.errors import LakeholdError
from lakehold.progress import NoProgress
from lakehold.verify.comparison import Comparison, Side
from tests.captured_shop import Shop, grant_capture
from tests.captured_shop import poor as poor  # noqa: PLC0414 - pytest finds fixtures by name
from tests.captured_shop import shop as shop  # noqa: PLC0414
from tests.captured_types import IN_POSTGRES, POSTGRES
from tests.live_source import execute
from tests.postgres_types import COLUMNS, ROWS, create_statement, insert_statements, update_statements

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_UNCOMPARED = {"pairs_of", "place", "area", "ring", "line"}
"""Columns of types that have no text which is the lake's value."""


def test_every_type_is_compared_and_each_corrupted_value_found(shop: Shop) -> None:
    _make_every_type(shop)
    for statements in ([], [*update_statements("everything", 0), "UPDATE odd SET id = id + 10"]):
        execute(shop.database, statements)
        for table in ("everything", "odd"):
            found = shop.lake.verify(f"shop.{table}")
            assert found.differences == ()
            assert found.is_whole
            assert not found.unresolved
    left_out = {column.name for column in POSTGRES if column.lake_type is None}
    assert {column.name for column in found.skipped} == _UNCOMPARED | left_out

    lost = {row: [c.name for c in COLUMNS[row::ROWS]] for row in range(ROWS)}
    nulled = ", ".join(
        f"`{name}` = CASE id WHEN {row} THEN NULL ELSE `{name}` END" for row, names in lost.items() for name in names
    )
    shop.lake.spark.sql(f"UPDATE {_in_lake(shop, 'everything')} SET {nulled}")
    found = shop.lake.verify("shop.everything")
    assert {each.key: sorted(each.columns) for each in found.differences} == {
        (str(row),): sorted(names) for row, names in lost.items()
    }
    assert all(each.nulls == each.columns and each.side is Side.VALUES_DIFFER for each in found.differences)
    assert found.reasons[0].startswith("snapshots of the table that no ingest wrote: 1, the newest at ")


def _make_every_type(shop: Shop) -> None:
    odd = [(each.name, each.type.replace("mood", "feeling"), each.value) for each in POSTGRES]
    execute(
        shop.database,
        [
            "CREATE TYPE mood AS ENUM ('happy', 'so-so')",
            *(statement.replace("TYPE mood", "TYPE feeling") for statement in IN_POSTGRES),
            create_statement("everything"),
            *insert_statements("everything", 0),
            f"CREATE TABLE odd (id int PRIMARY KEY, {', '.join(f'{name} {kind}' for name, kind, _ in odd)})",
            f"INSERT INTO odd VALUES (1, {', '.join(value for *_, value in odd)})",
            "INSERT INTO odd (id) VALUES (2)",
            *(f"ALTER TABLE {table} REPLICA IDENTITY FULL" for table in ("odd", "everything")),
        ],
    )
    shop.lake.sql(f"BEGIN; {Shop.creating('everything')}; {Shop.creating('odd')}; COMMIT")
    shop.follow_until_readable("everything")


def test_rows_that_somebody_changed_deleted_and_added_in_the_lake_are_found(shop: Shop) -> None:
    shop.upstream("orders", rows=5_000)
    shop.lake.sql(f"{Shop.creating('orders')} WITH (TRUNCATE = 'ignore')")
    shop.follow_until_readable("orders")
    assert _printed(shop, TableOutput, "shop.orders")[2] == EQUAL
    table = _in_lake(shop, "orders")
    for statement in (
        f"UPDATE {table} SET note = concat(note, '.') WHERE id = 7",
        f"DELETE FROM {table} WHERE id IN (1, 5000)",
        f"INSERT INTO {table} (id, n, note) VALUES (6000, 0, NULL), (8, 0, 'orders'), (10, 1, 'orders')",
    ):
        shop.lake.spark.sql(statement)
    found = shop.lake.verify("shop.orders")
    assert _sides(found) == {
        "1": Side.ONLY_IN_DATABASE,
        "5000": Side.ONLY_IN_DATABASE,
        "6000": Side.ONLY_IN_LAKE,
        "7": Side.VALUES_DIFFER,
        "8": Side.SEVERAL_ROWS,
        "10": Side.SEVERAL_ROWS,
    }
    assert (found.rows_in_database, found.rows_in_lake) == (5_000, 5_001)
    assert next(each.columns for each in found.differences if each.key == ("7",)) == ("note",)
    assert found.is_whole

    table_text, told, code = _printed(shop, TableOutput, "shop.orders", "shop.order")
    assert code == NOT_COMPARED
    assert re.search(r"shop\.orders +│ 7 +│ values differ +│ note", table_text)
    assert told[0].startswith("notice: shop.orders differs from public.orders at ")
    assert told[0].endswith(": 6 keys; 5,001 rows in the lake, 5,000 in the database")
    assert told[1].startswith("notice: snapshots of the table that no ingest wrote: 3, the newest at ")
    assert told[2].startswith("notice: shop.orders ignores TRUNCATE")
    assert told[3] == 'error: table "shop.order" does not exist', "the next table is compared, too"
    line, _, code = _printed(shop, JsonOutput, "shop.orders")
    assert code == DIFFERENT
    written = json.loads(line)
    assert (written["equal"], written["different"], written["complete"]) == (False, 6, True)
    assert {"key": ["7"], "difference": "values differ", "columns": ["note"]} in written["differences"]

    shop.lake.spark.sql(f"UPDATE {table} SET n = n + 1")
    found = shop.lake.verify("shop.orders")
    assert not found.is_equal
    assert found.different == 5_001
    assert len(found.differences) == 1_000


def test_changes_that_go_on_are_no_differences(shop: Shop) -> None:
    shop.upstream("orders", rows=2_000)
    shop.lake.sql(Shop.creating("orders"))
    shop.follow_until_readable("orders")
    closed = Event()
    with ThreadPoolExecutor(1) as threads:
        trading = threads.submit(_trade, shop, closed)
        try:
            for _ in range(2):
                found = shop.lake.verify("shop.orders")
                assert found.is_equal, found
            shop.lake.spark.sql(f"DELETE FROM {_in_lake(shop, 'orders')} WHERE id = 1999")
            found = shop.lake.verify("shop.orders")
        finally:
            closed.set()
        assert trading.result() > 0
    assert _sides(found) == {"1999": Side.ONLY_IN_DATABASE}


def _trade(shop: Shop, closed: Event) -> int:
    """Insert, delete, update and change back rows, many during each batch and each read, but leave the last ones alone."""
    with psycopg.connect(shop.database.addresses.postgres(shop.database.name), autocommit=True) as connection:
        for count in itertools.count():
            if closed.wait(0.02):
                return count
            connection.execute("UPDATE orders SET n = n + 1 WHERE id = %s", [count % 900 + 1])
            connection.execute("UPDATE orders SET n = 1 - n % 2 WHERE id = 901")
            connection.execute("DELETE FROM orders WHERE id = %s", [count % 400 + 1_000])
            connection.execute("INSERT INTO orders VALUES (%s, 0, 'new')", [count % 400 + 1_000])
    raise AssertionError("numbers do not end")


def test_keys_of_several_columns_and_reserved_names(shop: Shop) -> None:
    execute(
        shop.database,
        [
            'CREATE TABLE "order" ("user" uuid, day date, "select" numeric(12, 2), "a""b" text, PRIMARY KEY ("user", day))',
            """INSERT INTO "order" SELECT md5((i / 3)::text)::uuid, date '2026-01-01' + i % 3, i, E'a\\n"b",' || i """
            "FROM generate_series(1, 300) i",
            'ALTER TABLE "order" REPLICA IDENTITY FULL',
        ],
    )
    shop.lake.sql("CREATE TABLE shop.o FROM SOURCE shop (TABLE 'public.order') ENVELOPE DEBEZIUM")
    shop.follow_until_readable("o")
    assert shop.lake.verify("shop.o").is_equal
    shop.lake.spark.sql(f"UPDATE {_in_lake(shop, 'o')} SET `select` = `select` + 0.01 WHERE `select` = 150")
    (found,) = shop.lake.verify("shop.o").differences
    ((user, day),) = shop.query('SELECT "user"::text, day::text FROM "order" WHERE "select" = 150')
    assert (found.key, found.columns) == ((user, day), ("select",))


def test_a_table_that_cannot_be_compared_is_refused_with_the_reason(poor: Shop) -> None:
    poor.upstream("orders", "customers")
    grant_capture(poor, "orders", "customers")
    poor.lake.sql(f"BEGIN; {Shop.creating('orders')}; {Shop.creating('customers')}; COMMIT")
    poor.follow_until_readable("orders")
    with pytest.raises(LakeholdError, match=r'"shop\.order" does not exist') as unknown:
        poor.lake.verify("shop.order")
    assert unknown.value.hint == 'Did you mean "shop.orders"?'
    execute(
        poor.database,
        [
            "UPDATE orders SET note = 'seen' WHERE id = 1",
            "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
        ],
    )
    with pytest.raises(LakeholdError) as filtered:
        poor.lake.verify("shop.orders")
    assert filtered.value.code == "database-refused"
    assert "row-level security" in filtered.value.detail
    assert poor.lake.verify("shop.customers").is_equal
    execute(
        poor.database,
        ["ALTER TABLE orders DISABLE ROW LEVEL SECURITY", f"REVOKE SELECT ON orders FROM {poor.user}"],
    )
    with pytest.raises(LakeholdError, match=r'refused to show the rows of table "public\.orders"') as refused:
        poor.lake.verify("shop.orders")
    assert refused.value.detail == "permission denied for table orders (SQLSTATE 42501)."
    assert f"GRANT SELECT ON public.orders TO {poor.user}" in refused.value.hint.replace('"', "")


def _printed(shop: Shop, output: type[Output], *tables: str) -> tuple[str, list[str], int]:
    """Return what the command writes to stdout and stderr, and its exit code."""
    data, told = io.StringIO(), io.StringIO()
    code = run_verify(shop.lake, tables, output(data, told), NoProgress())
    return data.getvalue(), told.getvalue().splitlines(), code


def _in_lake(shop: Shop, table: str) -> str:
    return f"{shop.lake.settings.catalog_name}.shop.{table}"


def _sides(found: Comparison) -> dict[str | None, Side]:
    return {each.key[0]: each.side for each in found.differences}
