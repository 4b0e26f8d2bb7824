"""Invariants that hold after each commit of a database hold at each timestamp of the lake."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakehold import stack as lakehold_stack
from lakehold.ingest.several_sources import SourceFailed
from lakehold.lake import Lake
from lakehold.stack import StackAddresses
from tests.bank import TELLERS, Bank, MariaDbBank, PostgresBank, assert_balanced
from tests.conftest import LakeFactory
from tests.live_connector import kill_connect, position_of, restart_connector, set_back, wait_until_confirmed
from tests.live_source import LiveSource
from tests.mariadb_server import PASSWORD, MariaDb
from tests.mariadb_server import mariadb as mariadb  # noqa: PLC0414 - pytest finds fixtures by name
from tests.stack_fixtures import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_ARRIVES_WITHIN_S = 60.0

BY_SPARK_AND_IN_DRIVER = {"driver_read_max_records": 500}
"""Settings for which Spark reads snapshots and large batches, and the driver reads small batches."""


@contextmanager
def open_for_business(bank: Bank, transactions: int) -> Iterator[Callable[[], bool]]:
    """Run tellers in threads; yield a function that returns whether they are still at work."""
    with ThreadPoolExecutor(TELLERS) as threads:
        tellers = [threads.submit(bank.run, teller, transactions) for teller in range(TELLERS)]
        yield lambda: not all(teller.done() for teller in tellers)
        for teller in tellers:
            teller.result()


def ingest_together(lake: Lake, *sources: str) -> None:
    """Ingest sources together, so that lakehold reads their shared topics once."""
    assert not [
        report for report in lake.batches_together(sources) if isinstance(report, SourceFailed) or report.stopped
    ]


def assert_balanced_at_each_timestamp(lake: Lake, source: str, at_least: int) -> None:
    """Check the source's tables at each timestamp at which both are readable.

    One SUBSCRIBE a table has all of them. SELECT shows the same at the first and the last one.
    """
    since_ms = max(line.since_ms for line in lake.timelines.of([f"{source}.accounts", f"{source}.entries"]).values())
    changed = {b.mz_timestamp for b in lake.batches.history(source) if b.mz_timestamp >= since_ms and b.records}
    times = sorted({since_ms, *changed})
    assert len(times) >= at_least
    of_accounts, of_entries = (
        f"SELECT id, balance FROM {source}.accounts",
        f"SELECT account, amount FROM {source}.entries",
    )
    for time_ms, accounts, entries in zip(
        times, _states(lake, of_accounts, times), _states(lake, of_entries, times), strict=True
    ):
        assert_balanced(accounts, entries)
        if time_ms in (times[0], times[-1]):
            for query, rows in ((of_accounts, accounts), (of_entries, entries)):
                assert Counter(lake.sql(f"{query} AS OF {time_ms}").rows) == Counter(rows)


def _states(lake: Lake, query: str, times: Sequence[int]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of a query at each of the times, from its changes since the first one."""
    changes = lake.sql(f"SUBSCRIBE ({query}) AS OF {times[0]}").rows
    rows: Counter[tuple[Any, ...]] = Counter()
    done = 0
    for time_ms in times:
        while done < len(changes) and changes[done][0] <= time_ms:
            _, diff, *row = changes[done]
            rows[tuple(row)] += diff
            done += 1
        yield [*rows.elements()]


def test_transactions_overlap_and_a_killed_connector_repeats_them(
    make_lake: LakeFactory, database: SourceDatabase, stack_directory: Path
) -> None:
    bank = PostgresBank(database)
    bank.open()
    source = LiveSource(
        make_lake(**BY_SPARK_AND_IN_DRIVER),
        database,
        "accounts",
        "entries",
        partitions=3,
        max_records=800,
        whole_transactions=True,
    )
    source.table("accounts", "accounts", "DEBEZIUM")
    source.table("entries", "entries", "DEBEZIUM UPSERT")
    source.catch_up()
    place = position_of(database)

    with open_for_business(bank, 12) as is_open:
        source.ingest()
        kill_connect(stack_directory)
        lakehold_stack.up(stack_directory)
        while is_open():
            source.ingest()
    source.catch_up()
    set_back(database, place)
    bank.run(0, 10)
    source.catch_up()

    assert_balanced_at_each_timestamp(source.lake, "live", at_least=5)
    source.assert_equal("accounts", "accounts", ["id"])
    source.assert_equal("entries", "entries", ["id"])


def test_a_transaction_that_overlaps_a_restart_of_its_connector_is_whole(
    make_lake: LakeFactory, database: SourceDatabase
) -> None:
    """Restart the connector amid a transaction: Debezium before 3.7 resumes inside it, after the commit that it sent last."""
    database.execute("CREATE TABLE events (id int PRIMARY KEY)", "INSERT INTO events VALUES (0)")
    source = LiveSource(make_lake(), database, "events", whole_transactions=True)
    source.table("events", "events", "DEBEZIUM")
    source.catch_up()
    uri = database.addresses.postgres(database.name)
    with psycopg.connect(uri) as later, psycopg.connect(uri, autocommit=True) as earlier:
        later.execute("INSERT INTO events SELECT generate_series(11, 15)")
        earlier.execute("INSERT INTO events VALUES (1)")
        behind = earlier.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        later.execute("INSERT INTO events SELECT generate_series(16, 20)")
        assert behind is not None
        wait_until_confirmed(database, *behind)
        restart_connector(database)
        later.commit()
    source.catch_up()

    source.assert_equal("events", "events", ["id"])


@pytest.mark.soak
def test_transactions_of_mariadb_stay_whole(
    make_lake: LakeFactory,
    stack: StackAddresses,
    stack_directory: Path,
    mariadb: MariaDb,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAKEHOLD_SECRET_MARIA", PASSWORD)
    bank = MariaDbBank(mariadb)
    bank.open()
    lake = make_lake(**BY_SPARK_AND_IN_DRIVER)
    lake.sql(
        f"{mariadb.declaring(stack, 'bank', 'tellers', 'PARTITIONS 2')} WITH (MAX RECORDS = 500);"
        "BEGIN;"
        "CREATE TABLE bank.accounts FROM SOURCE bank (TABLE 'bank.accounts') ENVELOPE DEBEZIUM;"
        "CREATE TABLE bank.entries FROM SOURCE bank (TABLE 'bank.entries') ENVELOPE DEBEZIUM UPSERT;"
        "COMMIT;"
        # Another source over the same topics.
        "CREATE SOURCE audit FROM KAFKA CONNECTION kafka (TOPICS ('tellers.bank.accounts', 'tellers.bank.entries')) "
        "FORMAT JSON TRANSACTION METADATA TOPIC 'tellers.transaction';"
        "CREATE TABLE audit.entries FROM SOURCE audit (TOPIC 'tellers.bank.entries') ENVELOPE DEBEZIUM;"
        "CREATE TABLE audit.accounts FROM SOURCE audit (TOPIC 'tellers.bank.accounts') ENVELOPE DEBEZIUM UPSERT"
    )

    def follow() -> None:
        """Ingest until both sources equal the database."""
        wanted = {tuple(map(int, row)) for row in mariadb.rows("SELECT id, account, amount FROM bank.entries")}
        tables = ("bank.entries", "audit.entries")
        deadline = time.monotonic() + 4 * _ARRIVES_WITHIN_S
        while not all(_rows(lake, table, "id, account, amount") == wanted for table in tables):
            assert time.monotonic() < deadline
            ingest_together(lake, "bank", "audit")

    follow()
    with open_for_business(bank, 20) as is_open:
        ingest_together(lake, "bank", "audit")
        kill_connect(stack_directory)
        lakehold_stack.up(stack_directory)
        while is_open():
            ingest_together(lake, "bank", "audit")
    follow()
    assert_balanced_at_each_timestamp(lake, "bank", at_least=3)
    assert_balanced_at_each_timestamp(lake, "audit", at_least=1)


def _rows(lake: Lake, table: str, columns: str) -> set[tuple[Any, ...]]:
    """Return the rows of a table, none before its first batch."""
    if lake.tables.table_state(table) is None:
        return set()
    return {*lake.sql(f"SELECT {columns} FROM {lake.settings.catalog_name}.{table}").rows}
