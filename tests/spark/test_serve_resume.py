"""A reader of another language that dies and goes on: resume tokens of a SUBSCRIBE, over Flight SQL with ADBC's driver."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyarrow import flight

from lakehold.serve.serving import Door, served
from tests.conftest import LakeFactory
from tests.flight_sql import FlightSqlClient, batches
from tests.published_shop import Shop
from tests.runnable_pages import checked
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

TEXT = "SUBSCRIBE shop.t WITH (RESUME = {}) AS OF EARLIEST"

PAGE = "docs/how-to/connect-from-other-languages.md"

DYING = """
import os, signal
left = {rows}
def count():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def dying(address: str, rows: int) -> str:
    """Return the program of the page, which here kills itself when it has so many rows; -1: never."""
    (program,) = checked(PAGE, __file__)
    for written, here in (
        ("grpc://127.0.0.1:32010", address),
        ("shop.orders WITH (RESUME = ?)", "shop.t WITH (RESUME = ?) AS OF EARLIEST"),
        ('row["status"]))', 'row["v"])); count()'),
    ):
        assert written in program
        program = program.replace(written, here)
    return DYING.format(rows=rows) + program


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
    with closing(sqlite3.connect(tmp_path / "copy.db")) as store:

        def stored() -> list[tuple[object, ...]]:
            return store.execute("SELECT * FROM changes ORDER BY rowid").fetchall()

        def run(rows: int) -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, "-c", dying(address, rows)], cwd=tmp_path)

        assert run(1).wait(120) == -signal.SIGKILL, "killed within the snapshot"
        assert stored() == []
        shop.lake.sql("UPDATE shop.t SET v = 'c' WHERE id = 1")
        assert run(3).wait(120) == -signal.SIGKILL, "killed within a change"
        assert stored() == [(1, 1, "a"), (1, 2, "b")]
        shop.lake.sql("INSERT INTO shop.t VALUES (3, 'd')")
        shop.lake.sql("DELETE FROM shop.t WHERE id = 2")
        changes = [row[1:] for row in shop.lake.sql("SUBSCRIBE shop.t AS OF EARLIEST").rows]
        assert run(len(changes) - 2).wait(120) == -signal.SIGKILL, "killed at the last change"
        assert stored() == changes[:-1]
        last = run(-1)
        wait_for(lambda: len(stored()) >= len(changes), "the reader catches up")
        last.kill()
        last.wait()
        assert stored() == changes


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
