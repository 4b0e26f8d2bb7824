"""The end of a comparison by somebody is reported as such, and leaves no transaction in the database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from tests.conftest import LakeFactory
from tests.live_source import execute
from tests.stack_fixtures import SourceDatabase
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture
def lake(database: SourceDatabase, make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    execute(database, ["CREATE TABLE users (id int PRIMARY KEY, email text)", "INSERT INTO users VALUES (1, 'one')"])
    addresses = database.addresses
    lake = make_lake()
    lake.sql(
        f"CREATE CONNECTION pg TO POSTGRES (HOST '{addresses.postgres_host}', PORT {addresses.postgres_port}, "
        f"USER '{addresses.postgres_user}', PASSWORD SECRET 'pg', DATABASE '{database.name}')"
    )
    lake.catalog.create_namespace("bi")
    lake.catalog.create_table("bi.users", pa.schema([("id", pa.int32()), ("email", pa.string())]))
    return lake


@pytest.mark.parametrize(
    ("ends", "code", "message"),
    [
        ("SELECT pg_cancel_backend(%s)", "database-canceled", 'canceled the read of table "public.users"'),
        ("SELECT pg_terminate_backend(%s)", "database-unavailable", "was lost during the read"),
    ],
)
def test_a_read_that_somebody_ends_is_not_blamed_on_a_missing_grant(
    lake: Lake, database: SourceDatabase, ends: str, code: str, message: str
) -> None:
    kept = list(lake.checks.kept.values())
    with _locked(database), ThreadPoolExecutor(1) as threads:
        reading = threads.submit(lake.verify, "bi.users", connection="pg", upstream="public.users")
        wait_for(lambda: bool(_waiting(database)), "the read waits for the lock", within_s=180)
        _query(database, ends, *_waiting(database))
        with pytest.raises(LakeholdError, match=message) as ended:
            reading.result()
    assert (ended.value.code, ended.value.retryable) == (code, True)
    assert "GRANT" not in ended.value.hint
    assert list(lake.checks.kept.values()) == kept
    wait_for(lambda: not _sessions(database), "no session is left")


@pytest.mark.parametrize("sent", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_ctrl_c_ends_a_comparison_and_its_transaction(
    lake: Lake, database: SourceDatabase, sent: signal.Signals
) -> None:
    command = [str(Path(sys.executable).with_name("lakehold")), "verify", "bi.users"]
    command += ["--connection", "pg", "--upstream", "public.users", "-w", lake.settings.warehouse]
    environment = {**os.environ, "LAKEHOLD_CATALOG_NAME": lake.settings.catalog_name}
    with (
        _locked(database),
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            wait_for(
                lambda: bool(_waiting(database)) or process.poll() is not None,
                "the read waits for the lock",
                within_s=300,
            )
            process.send_signal(sent)
            stdout, stderr = process.communicate(timeout=300)
        finally:
            process.kill()
        assert (process.returncode, stdout) == (130, ""), stderr
        assert "Traceback" not in stderr
        wait_for(lambda: not _sessions(database), "no transaction is left, though the lock is")


@contextmanager
def _locked(database: SourceDatabase) -> Iterator[None]:
    """Have every read of the table wait."""
    with psycopg.connect(database.addresses.postgres(database.name)) as connection:
        connection.execute("LOCK TABLE users IN ACCESS EXCLUSIVE MODE")
        yield


def _waiting(database: SourceDatabase) -> list[int]:
    return [pid for pid, waits in _sessions(database) if waits == "Lock"]


def _sessions(database: SourceDatabase) -> list[tuple[int, str]]:
    """Return the sessions that read the table, and what they wait for."""
    return _query(
        database,
        "SELECT pid, wait_event_type FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY%%'",
    )


def _query(database: SourceDatabase, statement: str, *values: object) -> list[Any]:
    with psycopg.connect(database.addresses.postgres(database.name), autocommit=True) as connection:
        return connection.execute(statement.encode(), values or None).fetchall()
