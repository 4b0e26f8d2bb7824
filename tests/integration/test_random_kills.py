"""Publishers, durable clients, hold commands and maintenance are killed at random moments, again and again, beside a writer."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from lakehold.holds.commands import NewHold
from lakehold.lake import Lake, connect
from lakehold.times import now_ms
from tests.waiting import wait_for

COLUMNS = pa.schema([("id", pa.int64())])
ENDS_WITHIN_S = 400
LEASE_MS = 1_500
COMMAND = str(Path(sys.executable).with_name("lakehold"))

CLIENT = """
import json, sys
from lakehold.lake import connect

with connect() as lake, open(sys.argv[1], "a") as kept:
    for delivery in lake.durable("app", "SUBSCRIBE shop.t").deliveries():
        rows = [row[-1] for row in delivery]
        print(json.dumps([delivery.is_snapshot, delivery.timestamp, rows]), file=kept, flush=True)
        delivery.acknowledge()
        print(json.dumps("acknowledged"), file=kept, flush=True)
"""


class Shop:
    """A lake with a foreign table held from its first row on, and followers of the table."""

    def __init__(self, directory: Path, spark_remote: str) -> None:
        self.spark_remote = spark_remote
        self.directory = directory
        self.lake: Lake = connect(
            str(directory / "lake"), catalog_name="kills", foreign_lag_ms=0, retain_history_ms=0, expire_grace_ms=0
        )
        self.lake.catalog.create_namespace("shop")
        self.lake.catalog.create_table("shop.t", COLUMNS)
        self.written = 0
        self.write()
        first_ms = self.newest_ms
        self.lake.holds.create(NewHold("all", None, ("shop.t",), at_ms=first_ms))
        self.lake.holds.create(NewHold("moves", None, ("shop.t",), at_ms=first_ms))
        self.lake.sql("CREATE SUBSCRIPTION s INTO shop.out AS SUBSCRIBE shop.t")
        self.first_ms = first_ms

    @property
    def newest_ms(self) -> int:
        return int(self.lake.catalog.load_table("shop.t").metadata.last_updated_ms)

    def write(self) -> None:
        self.written += 1
        self.lake.catalog.load_table("shop.t").append(pa.table({"id": [self.written]}, COLUMNS))
        newest_ms = self.newest_ms
        wait_for(lambda: now_ms() > newest_ms, within_s=10)

    @property
    def received(self) -> Path:
        return self.directory / "received.jsonl"

    def commands(self) -> Sequence[Sequence[str]]:
        """Return the commands to kill, none of which needs Spark."""
        return (
            (COMMAND, "publish", "s", "--quiet"),
            (sys.executable, "-c", CLIENT, str(self.received)),
            (COMMAND, "sql", "ALTER HOLD moves ADVANCE"),
        )

    def start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        settings = {
            "warehouse": self.lake.settings.warehouse,
            "catalog_name": "kills",
            "foreign_lag_ms": "0",
            "retain_history_ms": "0",
            "expire_grace_ms": "0",
            "lease_ms": str(LEASE_MS),
            "lease_renew_ms": "300",
            "spark_remote": self.spark_remote,
        }
        environment = {f"LAKEHOLD_{name.upper()}": value for name, value in settings.items()}
        return subprocess.Popen(
            command,
            env={**os.environ, **environment},
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self, command: Sequence[str]) -> float:
        """Run a command to its end; return the seconds that it took."""
        self.wait_for_leases()
        began_ms = now_ms()
        process = self.start(command)
        try:
            _, complained = process.communicate(timeout=ENDS_WITHIN_S)
        finally:
            process.kill()
        assert process.returncode == 0, complained
        return (now_ms() - began_ms) / 1000

    def killed(self, command: Sequence[str], after_s: float) -> None:
        process = self.start(command)
        try:
            process.communicate(timeout=after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()

    def wait_for_leases(self) -> None:
        store = self.lake.subscriptions.store
        wait_for(lambda: all(s.lease is None or s.lease.until_ms <= now_ms() for s in store.subscribers()), within_s=30)

    def check_holds(self) -> None:
        """Check that each hold's table is readable at the hold's timestamp, and that hold `all` still tags the first snapshot."""
        table = self.lake.catalog.load_table("shop.t")
        for hold in self.lake.holds.all():
            assert hold.at_ms is not None
            rows = self.lake.sql(f"SUBSCRIBE shop.t WITH (SNAPSHOT) AS OF {hold.at_ms} UP TO {hold.at_ms + 1}").rows
            assert [row[-1] for row in rows] == list(range(1, len(rows) + 1))
        assert table.metadata.refs["hold_all"].snapshot_id == table.metadata.snapshots[0].snapshot_id


@pytest.fixture
def shop(tmp_path: Path, spark_connect: str) -> Iterator[Shop]:
    made = Shop(tmp_path, spark_connect)
    with made.lake:
        yield made


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.soak)])
def test_randomly_killed_followers_and_hold_commands_lose_nothing(shop: Shop, kills: int) -> None:
    chance = random.Random(5)
    takes_s = {command: shop.ended(command) for command in shop.commands()}
    for _ in range(kills):
        shop.write()
        command = chance.choice(shop.commands())
        # A command starts during most of its time: only the second half has something to interrupt.
        shop.killed(command, takes_s[command] * chance.uniform(0.4, 1.1))
        shop.check_holds()
    for command in shop.commands():
        shop.ended(command)
    everything = list(range(1, shop.written + 1))
    assert sorted(shop.lake.catalog.load_table("shop.out").scan().to_arrow()["id"].to_pylist()) == everything
    assert rows_once(shop.received) == everything
    shop.check_holds()


@pytest.mark.spark
@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.soak)])
def test_randomly_killed_maintenance_loses_nothing(shop: Shop, kills: int) -> None:
    chance = random.Random(7)
    maintain = (COMMAND, "maintain", "shop.t")
    for _ in range(12):
        shop.write()
    before = shop.lake.sql(f"SUBSCRIBE shop.t AS OF {shop.first_ms}").rows
    takes_s = shop.ended(maintain)
    for _ in range(kills):
        for _ in range(9):
            shop.write()
        shop.killed(maintain, takes_s * chance.uniform(0.5, 1.0))
        shop.check_holds()
    shop.ended(maintain)
    rows = shop.lake.sql(f"SUBSCRIBE shop.t AS OF {shop.first_ms}").rows
    assert rows[: len(before)] == before
    assert [row[-1] for row in rows] == list(range(1, shop.written + 1))


def rows_once(received: Path) -> list[int]:
    """Return the ids that a client received, and check that exactly the unacknowledged ones were delivered again.

    A client may die after it acknowledged a delivery and before it recorded that: then another delivery comes next.
    """
    delivered: dict[tuple[bool, int], list[int]] = {}
    acknowledged: set[tuple[bool, int]] = set()
    last: tuple[bool, int] | None = None
    for line in received.read_text().splitlines():
        message = json.loads(line)
        if message == "acknowledged":
            assert last is not None
            acknowledged.add(last)
            continue
        is_snapshot, timestamp, rows = message
        delivery = (is_snapshot, timestamp)
        assert delivery not in acknowledged
        if last is not None and delivery != last:
            acknowledged.add(last)
        assert delivered.setdefault(delivery, rows) == rows, "a repeated delivery has the same rows"
        last = delivery
    return [id_ for rows in delivered.values() for id_ in rows]
