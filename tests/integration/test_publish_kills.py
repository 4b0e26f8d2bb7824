"""Real `lakehold publish` processes are killed around their commits: the output has each timestamp exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lakehold.lake import Lake, connect
from lakehold.times import now_ms
from tests.waiting import wait_for

COLUMNS = pa.schema([("id", pa.int64())])
ENDS_WITHIN_S = 60
LEASE_MS = 1_500


class Shop:
    """A lake with a foreign table and a subscription to it."""

    def __init__(self, directory: Path) -> None:
        self.lake: Lake = connect(str(directory / "lake"), foreign_lag_ms=0)
        self.written = 0
        self.lake.catalog.create_namespace("shop")
        self.lake.catalog.create_table("shop.t", COLUMNS)
        self.write()
        self.lake.sql("CREATE SUBSCRIPTION s INTO shop.out AS SUBSCRIBE shop.t")

    def write(self) -> None:
        table = self.lake.catalog.load_table("shop.t")
        self.written += 1
        table.append(pa.table({"id": [self.written]}, COLUMNS))
        wait_for(lambda: now_ms() > table.metadata.last_updated_ms, within_s=10)

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        chosen = {
            "warehouse": self.lake.settings.warehouse,
            "foreign_lag_ms": "0",
            "lease_ms": str(LEASE_MS),
            "lease_renew_ms": "300",
            **settings,
        }
        return subprocess.Popen(
            [
                str(Path(sys.executable).with_name("lakehold")),
                "publish",
                "s",
                "--quiet",
                "--format",
                "json",
                *arguments,
            ],
            env={**os.environ, **{f"LAKEHOLD_{name.upper()}": value for name, value in chosen.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def published(self, *arguments: str, **settings: str) -> tuple[int, str, str]:
        process = self.start(*arguments, **settings)
        try:
            output, errors = process.communicate(timeout=ENDS_WITHIN_S)
        finally:
            process.kill()
        return process.returncode, output, errors

    def wait_for_lease(self) -> None:
        wait_for(self._is_free, within_s=30)

    def _is_free(self) -> bool:
        subscribers = self.lake.subscriptions.store.subscribers()
        return all(s.lease is None or s.lease.until_ms <= now_ms() for s in subscribers)

    @property
    def ids(self) -> list[int]:
        return sorted(self.lake.catalog.load_table("shop.out").scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_publisher_killed_before_or_after_its_commit_loses_and_repeats_nothing(shop: Shop) -> None:
    for point in ("before-publication", "after-publication") * 2:
        shop.write()
        shop.wait_for_lease()
        code, _, errors = shop.published(kill_at=point)
        assert code == -signal.SIGKILL, errors
    shop.wait_for_lease()
    code, _, errors = shop.published()
    assert code == 0, errors
    assert shop.ids == list(range(1, shop.written + 1))
    assert shop.lake.holds.hold("subscription_s").at_ms is not None


def test_a_suspended_publisher_that_wakes_up_after_its_successor_publishes_nothing(shop: Shop) -> None:
    shop.write()
    suspended = shop.start(suspend_at="before-publication")
    try:
        subscribers = shop.lake.subscriptions.store.subscribers
        wait_for(lambda: any(s.lease for s in subscribers()), within_s=ENDS_WITHIN_S)
        shop.wait_for_lease()
        code, _, errors = shop.published()
        assert code == 0, errors
        suspended.send_signal(signal.SIGCONT)
        _, errors = suspended.communicate(timeout=ENDS_WITHIN_S)
    finally:
        suspended.kill()
    assert suspended.returncode == 1
    assert "code: lease-lost" in errors
    assert shop.ids == list(range(1, shop.written + 1))


def test_following_ends_after_a_commit(shop: Shop) -> None:
    following = shop.start("--follow", foreign_lag_ms="2000")  # a commit takes time while another process reads
    assert following.stdout is not None
    try:
        first = json.loads(following.stdout.readline())
        assert (first["table"], first["rows"]) == ("shop.out", 1)
        code, _, errors = shop.published()
        assert (code, "code: subscriber-busy" in errors) == (1, True)
        shop.write()
        second = json.loads(following.stdout.readline())
        assert (second["timestamps"], second["rows"]) == (1, 1)
        following.send_signal(signal.SIGINT)
        _, errors = following.communicate(timeout=ENDS_WITHIN_S)
    finally:
        following.kill()
    assert (following.returncode, errors) == (0, "")
    assert shop.ids == [1, 2]
    hold = shop.lake.holds.hold("subscription_s")
    assert hold.at_ms is not None
    assert hold.at_ms >= second["position"] - 1
