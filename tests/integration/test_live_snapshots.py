"""Tables are snapshotted again, by a signal or because the connector starts over: the lake's tables equal PostgreSQL's.

Some changes never reach the connector, so that only the snapshot has them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, LiteralString

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from lakehold.stack import ConnectClient
from lakehold.status import status_of
from tests.conftest import LakeFactory
from tests.live_connector import forget_connector
from tests.live_source import LiveSource, execute
from tests.postgres_workload import RandomWorkload
from tests.stack_fixtures import SourceDatabase

pytestmark = [pytest.mark.stack, pytest.mark.spark]

_PARTITIONS = 3
_SNAPSHOT_WITHIN_S = 60.0


class Accounts:
    """The table `accounts` of the random workload, in the lake under both Debezium envelopes, whose connector reads signals."""

    def __init__(self, make_lake: LakeFactory, database: SourceDatabase, seed: int) -> None:
        self.workload = RandomWorkload(database, seed)
        self.workload.open()
        database.execute("CREATE TABLE signals (id text PRIMARY KEY, type text NOT NULL, data text)")
        self._database = database
        self._notifications = f"{database.topic_prefix}.notifications"
        options = {
            "signal.data.collection": "public.signals",
            "incremental.snapshot.chunk.size": "7",
            "notification.enabled.channels": "sink",
            "notification.sink.topic.name": self._notifications,
        }
        self.source = LiveSource(
            make_lake(), database, "accounts", value_format="json", partitions=_PARTITIONS, connector_options=options
        )
        database.execute("ALTER PUBLICATION captured ADD TABLE signals")
        self.source.table("accounts", "accounts", "DEBEZIUM")
        self.source.table("accounts_upsert", "accounts", "DEBEZIUM UPSERT")
        self.workload.run(10)
        self.source.catch_up()
        self.assert_equal()

    def assert_equal(self) -> None:
        """Compare both tables with PostgreSQL's."""
        self.source.assert_equal("accounts", "accounts", ["id"])
        self.source.assert_equal("accounts_upsert", "accounts", ["id"])

    def since(self) -> list[Any]:
        """Return the time from which each table is readable."""
        status = status_of(self.source.lake)
        at = status.columns.index("since")
        return [row[at] for row in status.rows]

    def change_unseen(self, *statements: LiteralString) -> None:
        """Run statements whose changes PostgreSQL does not publish."""
        self._database.execute("ALTER PUBLICATION captured DROP TABLE accounts")
        self._database.execute(*statements)
        self._database.execute("ALTER PUBLICATION captured ADD TABLE accounts")

    def signal_snapshot(self, kind: Literal["incremental", "blocking"], condition: str) -> None:
        """Ask the connector for a snapshot of the rows that satisfy a condition."""
        chosen = condition if kind == "incremental" else f"SELECT * FROM public.accounts WHERE {condition}"
        conditions = [{"data-collection": "public.accounts", "filter": chosen}]
        request = {"type": kind, "data-collections": ["public.accounts"], "additional-conditions": conditions}
        data = json.dumps(request)
        signal = f"('{uuid.uuid4().hex}', 'execute-snapshot', '{data}')"
        execute(self._database, [f"INSERT INTO signals VALUES {signal}"])

    def wait_until_snapshotted(self, kind: Literal["Initial", "Incremental"], times: int) -> None:
        """Wait for `times` notifications of a complete snapshot; the connector calls blocking snapshots initial."""
        completed = 0
        for notification in self._reported():
            completed += notification == (f"{kind} Snapshot", "COMPLETED")
            if completed == times:
                return

    def _reported(self) -> Iterator[tuple[str, str]]:
        settings = {"bootstrap.servers": self._database.addresses.kafka, "group.id": uuid.uuid4().hex, "log_level": 0}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(self._notifications, p, OFFSET_BEGINNING) for p in range(_PARTITIONS)])
        deadline = time.monotonic() + _SNAPSHOT_WITHIN_S
        try:
            while time.monotonic() < deadline:
                message = consumer.poll(0.5)
                value = message.value() if message is not None and message.error() is None else None
                if value is not None:
                    payload = json.loads(value)["payload"]
                    yield payload["aggregate_type"], payload["type"]
        finally:
            consumer.close()
        raise AssertionError(f"the snapshot is not complete within {_SNAPSHOT_WITHIN_S} s")


@pytest.mark.parametrize(
    ("kind", "reported_as", "times"), [("incremental", "Incremental", 1), ("blocking", "Initial", 2)]
)
def test_a_snapshot_of_some_rows_leaves_the_others_that_change(
    make_lake: LakeFactory,
    database: SourceDatabase,
    kind: Literal["incremental", "blocking"],
    reported_as: Literal["Initial", "Incremental"],
    times: int,
) -> None:
    accounts = Accounts(make_lake, database, seed=7)
    since = accounts.since()
    accounts.change_unseen(
        "INSERT INTO accounts (id, name) VALUES (500, 'unseen')",
        "UPDATE accounts SET name = 'unseen' WHERE id % 4 = 0",
    )
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(accounts.workload.run, 30)
        accounts.signal_snapshot(kind, "id % 4 = 0 OR id = 500")
        accounts.source.ingest()
        running.result()
    accounts.wait_until_snapshotted(reported_as, times)
    accounts.source.catch_up()
    accounts.assert_equal()
    assert accounts.since() == since


def test_a_connector_without_offsets_starts_over(make_lake: LakeFactory, database: SourceDatabase) -> None:
    accounts = Accounts(make_lake, database, seed=9)
    since = accounts.since()
    config = forget_connector(database)
    accounts.workload.run(20)
    database.execute("DELETE FROM accounts WHERE id < 20")
    with ConnectClient(database.addresses.connect) as connect:
        connect.put(database.name, config)
        accounts.workload.run(20)
        connect.wait_until_running(database.name)
    accounts.wait_until_snapshotted("Initial", times=2)
    accounts.source.catch_up()
    accounts.assert_equal()
    assert accounts.since() == since
