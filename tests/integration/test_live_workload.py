"""Whatever an application does to PostgreSQL, and whatever dies in between, the lake's tables are equal to PostgreSQL's."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from lakehold import stack as lakehold_stack
from lakehold.ingest.batch import BatchReport
from lakehold.stack import ConnectClient
from tests.conftest import LakeFactory
from tests.live_source import LiveSource
from tests.postgres_workload import RandomWorkload
from tests.stack_fixtures import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_EVERY_OPERATION = {"skipped.operations": "none"}
"""Otherwise Debezium keeps TRUNCATE to itself."""

_FLUSHES_NOTHING = {"lsn.flush.mode": "manual"}
"""PostgreSQL keeps what was sent, so that a connector whose offsets are older can ask for it again."""

_STOPS_WITHIN_S = 30.0


def _assert_equal(source: LiveSource) -> None:
    source.assert_equal("accounts", "accounts", ["id"])
    source.assert_equal("entries", "entries", ["account", "line"])


def test_random_transactions_a_truncate_and_altered_tables(make_lake: LakeFactory, database: SourceDatabase) -> None:
    workload = RandomWorkload(database, seed=3)
    workload.open()
    database.execute("CREATE TABLE log (id int PRIMARY KEY)", "INSERT INTO log VALUES (1), (2)")
    source = LiveSource(
        make_lake(), database, "accounts", "entries", "log", max_records=400, connector_options=_EVERY_OPERATION
    )
    source.table("accounts", "accounts", "DEBEZIUM")
    source.table("entries", "entries", "DEBEZIUM UPSERT")
    source.table("log_kept", "log", "DEBEZIUM")
    source.table("log_truncated", "log", "DEBEZIUM", "WITH (TRUNCATE = 'apply')")
    source.catch_up()
    _assert_equal(source)

    workload.run(80)
    database.execute("INSERT INTO log VALUES (3)", "TRUNCATE log", "INSERT INTO log VALUES (4)")
    assert len(source.catch_up()) > 1, "the changes take several batches"
    _assert_equal(source)
    source.assert_equal("log_truncated", "log", ["id"])
    assert sorted(source.rows("log_kept")) == [(1,), (2,), (3,), (4,)]

    workload.run(20)
    workload.alter()
    workload.run(40)
    source.catch_up()
    _assert_equal(source)


def test_connect_is_killed_while_changes_run_and_sends_changes_again(
    make_lake: LakeFactory, database: SourceDatabase, stack_directory: Path
) -> None:
    workload = RandomWorkload(database, seed=5)
    workload.open()
    source = LiveSource(
        make_lake(driver_read_max_records=0),
        database,
        "accounts",
        "entries",
        partitions=3,
        connector_options=_FLUSHES_NOTHING,
    )
    source.table("accounts", "accounts", "DEBEZIUM")
    source.table("entries", "entries", "DEBEZIUM UPSERT")
    workload.run(10)
    source.catch_up()
    _assert_equal(source)
    offsets = _connector_offsets(database)

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(workload.run, 120)
        _kill_connect(stack_directory)
        lakehold_stack.up(stack_directory)
        source.ingest()
        running.result()
    assert _repeated(source.catch_up()) == 0, "the connector's transactions leave nothing to send again"
    _assert_equal(source)

    _forget_since(database, offsets)
    workload.run(10)
    assert _repeated(source.catch_up()) > 0
    _assert_equal(source)


def _repeated(reports: Iterable[BatchReport]) -> int:
    return sum(table.repeated for report in reports for table in report.tables)


def _kill_connect(directory: Path) -> None:
    (pid,) = (part.pid for part in lakehold_stack.status(directory) if part.name == "connect")
    connect = psutil.Process(pid)
    connect.kill()
    connect.wait()


def _connector_offsets(database: SourceDatabase) -> Any:
    """Up to where the connector says that it has sent."""
    return httpx.get(f"{database.addresses.connect}/connectors/{database.name}/offsets").raise_for_status().json()


def _forget_since(database: SourceDatabase, offsets: Any) -> None:
    """Set the connector back, as a crash does without Kafka transactions."""
    connector = f"{database.addresses.connect}/connectors/{database.name}"
    httpx.put(f"{connector}/stop").raise_for_status()
    with ConnectClient(database.addresses.connect) as connect:
        deadline = time.monotonic() + _STOPS_WITHIN_S
        while connect.status(database.name).tasks:
            assert time.monotonic() < deadline, "the connector does not stop"
        httpx.patch(f"{connector}/offsets", json=offsets, timeout=30).raise_for_status()
        httpx.put(f"{connector}/resume").raise_for_status()
        connect.wait_until_running(database.name)
