"""Real `lakehold publish` processes that refresh a view or keep a history are killed: each timestamp is merged exactly once."""

from __future__ import annotations

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

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("id", pa.int64())])
ENDS_WITHIN_S = 240


class Shop:
    """A lake with a foreign table, and `bi.v`, which has its rows: a repeated merge would show."""

    def __init__(self, directory: Path, spark_remote: str) -> None:
        self.name = "bi.v"
        self.spark_remote = spark_remote
        self.lake: Lake = connect(str(directory / "lake"), foreign_lag_ms=0)
        self.written = 0
        self.lake.catalog.create_namespace("shop")
        self.lake.catalog.create_table("shop.t", COLUMNS)

    def write(self) -> None:
        table = self.lake.catalog.load_table("shop.t")
        self.written += 1
        table.append(pa.table({"id": [self.written]}, COLUMNS))
        wait_for(lambda: now_ms() > table.metadata.last_updated_ms, within_s=10)

    def start(self, **settings: str) -> subprocess.Popen[str]:
        chosen = {
            "warehouse": self.lake.settings.warehouse,
            "spark_remote": self.spark_remote,
            "foreign_lag_ms": "0",
            "lease_ms": "1500",
            "lease_renew_ms": "300",
            **settings,
        }
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("lakehold")), "publish", self.name, "--quiet"],
            env={**os.environ, **{f"LAKEHOLD_{name.upper()}": value for name, value in chosen.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def published(self, **settings: str) -> tuple[int, str]:
        process = self.start(**settings)
        try:
            _, errors = process.communicate(timeout=ENDS_WITHIN_S)
        finally:
            process.kill()
        self.wait_for_lease()
        return process.returncode, errors

    def wait_for_lease(self) -> None:
        wait_for(self._is_free, within_s=30)

    def _is_free(self) -> bool:
        subscribers = self.lake.subscriptions.store.subscribers()
        return all(s.lease is None or s.lease.until_ms <= now_ms() for s in subscribers)

    def ids(self) -> list[int]:
        return sorted(self.lake.catalog.load_table("bi.v").scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def shop(tmp_path: Path, spark_connect: str) -> Shop:
    made = Shop(tmp_path, spark_connect)
    made.write()
    return made


def test_a_refresh_killed_around_its_commit_loses_and_repeats_nothing(shop: Shop) -> None:
    shop.lake.sql("CREATE MATERIALIZED VIEW bi.v AS SELECT id FROM shop.t")
    assert_killed_around_commits(shop)


def test_a_history_killed_around_its_commit_loses_and_repeats_nothing(shop: Shop) -> None:
    shop.lake.sql("CREATE SUBSCRIPTION h INTO bi.v AS SUBSCRIBE shop.t ENVELOPE HISTORY (KEY (id))")
    shop.name = "h"
    assert_killed_around_commits(shop)


def assert_killed_around_commits(shop: Shop) -> None:
    for point in ("before-publish", "after-publication"):
        shop.write()
        code, errors = shop.published(kill_at=point)
        assert code == -signal.SIGKILL, errors
    code, errors = shop.published()
    assert code == 0, errors
    assert shop.ids() == list(range(1, shop.written + 1))
    assert list(shop.lake.catalog.load_table("bi.v").metadata.refs) == ["main"]
