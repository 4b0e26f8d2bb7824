"""Each server of the stack is killed, and suspended, while a bank works and an ingest follows it: the bank always balances."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event

import psycopg
import pytest

from lakehold import stack as lakehold_stack
from lakehold.errors import LakeholdError
from tests.bank import TELLERS, PostgresBank
from tests.captured_shop import Shop
from tests.conftest import LakeFactory
from tests.integration.test_live_transactions import BY_SPARK_AND_IN_DRIVER, assert_balanced_at_each_timestamp
from tests.live_connector import process_of
from tests.stack_fixtures import SourceDatabase
from tests.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.spark]

PARTS = ("postgres", "kafka", "registry", "connect")
TIMEOUT_MS = 10_000
RECOVERS_WITHIN_S = 300
PAUSE_S = 0.3
"""The pause of a teller between transactions: others need the processor, too."""


class Following:
    """A loop of ingests in a thread, which outlives what may pass.

    Attributes:
        rounds: How many ingests have ended, with an error or not.
        batches: How many batches with records were committed.
        seen: The codes of the errors that passed.
    """

    def __init__(self, shop: Shop, closed: Event) -> None:
        self._shop = shop
        self._closed = closed
        self.rounds = 0
        self.batches = 0
        self.seen: set[str] = set()
        self._failed: list[LakeholdError] = []

    def run(self) -> None:
        """Ingest until the test ends, or an error comes that does not pass."""
        while not self._closed.is_set() and not self._failed:
            try:
                for report in self._shop.lake.batches_of("shop"):
                    self.batches += bool(report.records)
                    self._failed.extend(report.stopped.values())
            except LakeholdError as error:
                if not error.retryable:
                    self._failed.append(error)
                self.seen.add(error.code)
            self.rounds += 1

    def wait_for(self, rounds: int = 0, batches: int = 0) -> None:
        """Wait for further ends of ingests, and for further batches."""
        rounds, batches = self.rounds + rounds, self.batches + batches
        wait_for(
            lambda: bool(self._failed) or (self.rounds >= rounds and self.batches >= batches),
            f"{rounds} ingests and {batches} batches",
            within_s=RECOVERS_WITHIN_S,
        )
        for error in self._failed:
            raise error


@pytest.fixture
def shop(make_lake: LakeFactory, database: SourceDatabase, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Return a bank that a lake captures in Avro, with the registry that its schemas need."""
    monkeypatch.setenv("LAKEHOLD_SECRET_PG", database.addresses.postgres_password)
    PostgresBank(database).open()
    settings = {**BY_SPARK_AND_IN_DRIVER, "upstream_timeout_ms": TIMEOUT_MS}
    shop = Shop(partial(make_lake, **settings), database, "FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry")
    shop.lake.sql(f"BEGIN; {shop.creating('accounts', 'DEBEZIUM UPSERT')}; {shop.creating('entries')}; COMMIT")
    yield shop
    shop.close()


def _trade(bank: PostgresBank, teller: int, closed: Event) -> None:
    """Run transactions of one teller until the test ends, over ends of the database, not as fast as it can."""
    while not closed.wait(PAUSE_S):
        with suppress(psycopg.OperationalError):
            bank.run(teller, 1)


def _totals(shop: Shop, entries: str) -> list[tuple[int, int]]:
    query = f"SELECT account, CAST(sum(amount) AS INT) FROM {entries} GROUP BY account ORDER BY account"
    return shop.lake.sql(query).rows if "." in entries else shop.query(query)


@pytest.mark.parametrize(
    "fault",
    [pytest.param(signal.SIGKILL, id="killed"), pytest.param(signal.SIGSTOP, id="suspended", marks=pytest.mark.soak)],
)
def test_a_bank_balances_while_each_server_is_killed_or_suspended(
    shop: Shop, stack_directory: Path, fault: signal.Signals
) -> None:
    closed, bank = Event(), PostgresBank(shop.database)
    following = Following(shop, closed)
    with ThreadPoolExecutor(TELLERS + 1) as threads:
        tellers = [threads.submit(_trade, bank, teller, closed) for teller in range(TELLERS)]
        ingest = threads.submit(following.run)
        try:
            for part in PARTS:
                following.wait_for(batches=2)
                process = process_of(stack_directory, part)
                process.send_signal(fault)
                if fault is signal.SIGKILL:
                    process.wait()
                    lakehold_stack.up(stack_directory)
                else:
                    # A suspended server accepts connections, and does not answer.
                    try:
                        following.wait_for(rounds=2)
                    finally:
                        process.send_signal(signal.SIGCONT)
            following.wait_for(batches=2)
        finally:
            closed.set()
        for thread in (*tellers, ingest):
            thread.result()

    assert following.seen <= {"kafka-unavailable", "registry-unavailable", "database-unavailable"}, following.seen
    wait_for(
        lambda: bool(shop.lake.ingest("shop")) and _totals(shop, "shop.entries") == _totals(shop, "entries"),
        "the lake has all entries",
        within_s=RECOVERS_WITHIN_S,
    )
    assert_balanced_at_each_timestamp(shop.lake, "shop", at_least=2 * len(PARTS))
