"""A reader of another language that dies and goes on: resume tokens of a SUBSCRIBE, over Flight SQL with ADBC's driver."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from lakehold.serve.serving import Door, served
from tests.conftest import LakeFactory
from tests.flight_sql import FlightSqlClient, batches
from tests.published_shop import COLUMNS, Shop
from tests.runnable_pages import checked
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

PAGE = "docs/how-to/connect-from-other-languages.md"
ADDRESS = "grpc://127.0.0.1:32010"
TEXT = "SUBSCRIBE shop.t WITH (RESUME = {}) AS OF EARLIEST"

DYING = """
import os, signal
left = {rows}
def count():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
"""


class Copy:
    """A program of the page, which keeps a copy in SQLite and kills itself when it has so many rows.

    Args:
        directory: Where it runs.
        program: The program.
        here: Texts that stand here for others of the program.
    """

    def __init__(self, directory: Path, program: str, here: Mapping[str, str]) -> None:
        for written, text in here.items():
            assert written in program
            program = program.replace(written, text)
        self._program = program
        self._directory = directory
        (store,) = re.findall(r'sqlite3.connect\("(\w+\.db)"\)', program)
        self._store = sqlite3.connect(directory / store)

    def stored(self, columns: str = "*") -> list[tuple[Any, ...]]:
        return self._store.execute(f"SELECT {columns} FROM changes ORDER BY rowid").fetchall()

    def dies(self, rows: int) -> None:
        with self._run(rows) as process:
            assert process.wait(120) == -signal.SIGKILL

    def runs_until(self, condition: Callable[[], bool]) -> None:
        with self._run(-1) as process:
            try:
                wait_for(condition, "it catches up")
            finally:
                process.kill()

    def close(self) -> None:
        self._store.close()

    def _run(self, rows: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", DYING.format(rows=rows) + self._program], cwd=self._directory)


@pytest.fixture
def shop(make_lake: LakeFactory) -> Shop:
    shop = Shop(make_lake)
    shop.write((1, "a"), (2, "b"))
    return shop


@pytest.fixture
def address(shop: Shop) -> Iterator[str]:
    with served(shop.lake, Door()) as address:
        yield address


def test_a_reader_that_is_killed_again_and_again_stores_each_change_once(
    shop: Shop, address: str, tmp_path: Path
) -> None:
    here = {
        ADDRESS: address,
        "shop.orders WITH (RESUME = ?)": "shop.t WITH (RESUME = ?) AS OF EARLIEST",
        'row["status"]))': 'row["v"])); count()',
    }
    with closing(Copy(tmp_path, checked(PAGE, __file__)[0], here)) as copy:
        copy.dies(1)
        assert copy.stored() == [], "killed within the snapshot"
        shop.lake.sql("UPDATE shop.t SET v = 'c' WHERE id = 1")
        copy.dies(3)
        assert copy.stored() == [(1, 1, "a"), (1, 2, "b")], "killed within a change"
        shop.lake.sql("INSERT INTO shop.t VALUES (3, 'd')")
        shop.lake.sql("DELETE FROM shop.t WHERE id = 2")
        changes = [row[1:] for row in shop.lake.sql("SUBSCRIBE shop.t AS OF EARLIEST").rows]
        copy.dies(len(changes) - 2)
        assert copy.stored() == changes[:-1], "killed at the last change"
        copy.runs_until(lambda: len(copy.stored()) >= len(changes))
        assert copy.stored() == changes


def test_a_client_that_follows_two_tables_stores_both_as_they_were_together(
    shop: Shop, address: str, tmp_path: Path
) -> None:
    shop.lake.catalog.create_table("shop.u", COLUMNS)
    shop.write((1, "a"), name="shop.u")
    here = {
        ADDRESS: address,
        "(SELECT id, status FROM shop.orders)": "(SELECT id, v FROM shop.u)",
        "shop.customers": "shop.t",
        "shop.orders": "shop.u",
        "(name, diff, id, value))": "(name, diff, id, value)); count()",
    }

    def rows_of(name: str) -> list[tuple[Any, ...]]:
        return [row[1:] for row in copy.stored("statement, diff, id") if row[0] == name]

    with closing(Copy(tmp_path, checked(PAGE, __file__)[1], here)) as copy:
        for last, rows in ((3, 3), (4, 4)):
            copy.dies(rows)
            assert copy.stored() == [], "killed within the snapshot, or between the two statements"
            for table in ("shop.t", "shop.u"):
                shop.lake.sql(f"INSERT INTO {table} VALUES ({last}, 'x')")
        copy.runs_until(lambda: len(copy.stored()) >= 7)
        for table in ("shop.t", "shop.u"):
            shop.lake.sql(f"INSERT INTO {table} VALUES (5, 'x')")
        copy.dies(2)
        assert {id_ for _, id_ in rows_of("orders")} <= {id_ for _, id_ in rows_of("customers")}
        copy.runs_until(lambda: len(copy.stored()) >= 9)
        assert rows_of("customers") == [(1, id_) for id_ in (1, 2, 3, 4, 5)]
        assert rows_of("orders") == [(1, id_) for id_ in (1, 3, 4, 5)]


def test_tokens_come_when_what_is_before_them_has_come(shop: Shop, address: str) -> None:
    with closing(FlightSqlClient(address)) as client:
        reader = client.stream(TEXT.format("NULL"))
        assert reader.schema.names == ["mz_timestamp", "mz_progressed", "mz_resume", "mz_diff", "id", "v"]
        rows = (row for batch in batches(reader) for row in batch)
        first, *snapshot, after = (next(rows) for _ in range(4))
        assert (first["mz_progressed"], first["mz_resume"]) == (True, None), "nothing was read yet"
        assert [(row["id"], row["mz_resume"]) for row in snapshot] == [(1, None), (2, None)]
        reader.cancel()
        shop.lake.sql("INSERT INTO shop.t VALUES (3, 'c')")

        resumed = (row for batch in batches(client.stream(TEXT.format(f"'{after['mz_resume']}'"))) for row in batch)
        assert next(resumed)["mz_resume"] == after["mz_resume"], "the token stays valid until more was read"
        assert (next(resumed)["id"], next(resumed)["mz_progressed"]) == (3, True)

        without = "SUBSCRIBE shop.t WITH (RESUME = NULL, SNAPSHOT = false)"
        (from_now,) = next(batches(client.stream(without)))
        shop.lake.sql("INSERT INTO shop.t VALUES (4, 'd')")
        later = (
            row
            for batch in batches(client.stream(without.replace("NULL", f"'{from_now['mz_resume']}'")))
            for row in batch
        )
        assert [row["id"] for row in (next(later), next(later))] == [None, 4]


def test_columns_named_like_those_of_progress_are_null_in_progress_rows(shop: Shop, address: str) -> None:
    columns = pa.schema([("mz_timestamp", pa.int64()), ("mz_resume", pa.string())])
    shop.lake.catalog.create_table("shop.odd", columns).append(pa.table([[7], ["x"]], schema=columns))
    with closing(FlightSqlClient(address)) as client:
        reader = client.stream("SUBSCRIBE shop.odd WITH (RESUME = NULL)")
        chunks = (chunk.data for chunk in reader)
        rows = [[column[0].as_py() for column in next(chunks).columns] for _ in range(3)]
        reader.cancel()
    assert [row[3:] for row in rows] == [[None, None, None], [1, 7, "x"], [None, None, None]]
    assert [row[2] is None for row in rows] == [True, True, False]


def test_a_token_of_something_else_is_refused(shop: Shop, address: str) -> None:
    with closing(FlightSqlClient(address)) as client:
        rows = (row for batch in batches(client.stream(TEXT.format("NULL"))) for row in batch)
        token = next(row["mz_resume"] for row in rows if row["mz_resume"])

        def refused(text: str) -> str:
            with pytest.raises(flight.FlightError) as raised:
                client.rows(text)
            return str(raised.value)

        for other in ("''", "'nonsense'", f"'{token[:-9]}'"):
            assert "code: token-invalid" in refused(TEXT.format(other))
        assert "code: token-statement" in refused(f"SUBSCRIBE shop.t WITH (RESUME = '{token}')")
        shop.lake.sql("ALTER TABLE shop.t ADD COLUMN w INT")
        assert "code: token-columns" in refused(TEXT.format(f"'{token}'"))
