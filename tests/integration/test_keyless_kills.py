"""Real `lakehold ingest` processes that bring changes into a table without a key are killed: no row is lost or added twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lakehold.lake import connect
from lakehold.times import now_ms
from tests.debezium_messages import Topic
from tests.debezium_shop import COLUMNS, row
from tests.lakehold_process import IngestProcesses
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

LEASE_MS = 3_000


def test_killed_batches_are_finished_once(spark_connect: str, tmp_path: Path) -> None:
    directory = tmp_path / "topics"
    directory.mkdir()
    lake = connect(str(tmp_path / "lake"))
    processes = IngestProcesses(
        tmp_path / "lake", "shop", {"lease_ms": LEASE_MS, "lease_renew_ms": 500, "spark_remote": spark_connect}
    )
    lake.sql(
        f"CREATE SOURCE shop FROM FILES '{directory}' FORMAT JSON;"
        "CREATE TABLE s.t FROM SOURCE shop (TOPIC 't') ENVELOPE DEBEZIUM"
    )
    topic = Topic("t", dict(COLUMNS), key=(), has_keys=False, has_orders=True)

    def ingest(kill_at: str | None = None) -> None:
        topic.write(directory)
        wait_for(
            lambda: all(r.lease is None or r.lease.until_ms <= now_ms() for r in lake.batches.readers("shop").values()),
            "nobody has the source",
        )
        code, output = processes.run(**({} if kill_at is None else {"kill_at": kill_at}))
        assert code == (0 if kill_at is None else -signal.SIGKILL), output

    def rows() -> list[int]:
        return sorted(lake.catalog.load_table("s.t").scan().to_arrow()["id"].to_pylist())

    topic.snapshot([row(1), row(1), row(1), row(2)])
    ingest("after-merge")
    topic.delete(row(1))
    topic.create(row(3), row(3))
    topic.resend(2)
    ingest("before-publish")
    assert rows() == [1, 1, 1, 2], "what was written is on a branch"
    ingest("after-merge")
    assert rows() == [1, 1, 2, 3, 3]
    topic.update(row(3), row(1))
    ingest("before-commit")
    ingest()
    assert rows() == [1, 1, 1, 2, 3]
    assert lake.catalog.load_table("s.t").metadata.refs.keys() == {"main"}
