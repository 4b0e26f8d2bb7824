"""The lake's tables equal PostgreSQL's, whatever an application does to PostgreSQL and whichever part dies in between."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakehold import stack as lakehold_stack
from lakehold.ingest.batch_report import BatchReport
from tests.conftest import LakeFactory
from tests.live_connector import kill_connect, position_of, set_back
from tests.live_source import LiveSource
from tests.postgres_workload import RandomWorkload
from tests.stack_fixtures import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_EVERY_OPERATION = {"skipped.operations": "none"}
"""Options without which Debezium skips TRUNCATE."""


def _assert_equal(source: LiveSource) -> None:
    source.assert_equal("accounts", "accounts", ["id"])
    source.assert_equal("entries", "entries", ["account", "line"])


def test_random_transactions_a_truncate_and_altered_tables_are_applied(
    make_lake: LakeFactory, database: SourceDatabase
) -> None:
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
    )
    source.table("accounts", "accounts", "DEBEZIUM")
    source.table("entries", "entries", "DEBEZIUM UPSERT")
    workload.run(10)
    source.catch_up()
    _assert_equal(source)
    place = position_of(database)

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(workload.run, 120)
        kill_connect(stack_directory)
        lakehold_stack.up(stack_directory)
        source.ingest()
        running.result()
    assert _repeated(source.catch_up()) == 0, "the connector's transactions leave nothing to send again"
    _assert_equal(source)

    set_back(database, place)
    workload.run(10)
    assert _repeated(source.catch_up()) > 0
    _assert_equal(source)


def _repeated(reports: Iterable[BatchReport]) -> int:
    return sum(table.repeated for report in reports for table in report.tables)
