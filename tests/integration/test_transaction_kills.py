"""Real `lakehold ingest` processes are killed amid batches of whole transactions: finished batches end at the same commits."""

from __future__ import annotations

import signal
from pathlib import Path
from random import Random

import pytest

from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.lakehold_process import IngestProcesses
from tests.transaction_files import define, record, states
from tests.upstream_log import Upstream
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

LEASE_MS = 3_000
TABLES = {"t0": "DEBEZIUM UPSERT", "t1": "DEBEZIUM"}
POINTS = ("after-intent", "after-merge", "after-commit")


def test_a_batch_that_was_begun_keeps_its_end_offsets_whatever_arrives_meanwhile(
    make_lake: LakeFactory, spark_connect: str, tmp_path: Path
) -> None:
    upstream = Upstream(Random(5), tables=2, partitions=2, transactions=16, ids="postgres", snapshots=False)
    upstream.stream(kills=1)
    lake = make_lake(tmp_path / "lake")
    define(lake, tmp_path / "topics", TABLES, "WITH (MAX RECORDS = 14)")
    settings: dict[str, str | int] = {
        "lease_ms": LEASE_MS,
        "lease_renew_ms": 500,
        "catalog_name": lake.settings.catalog_name,
        "spark_remote": spark_connect,
    }
    processes = IngestProcesses(tmp_path / "lake", "shop", settings)

    def is_free() -> bool:
        leases = [reader.lease for reader in lake.batches.readers("shop").values()]
        return all(lease is None or lease.until_ms <= now_ms() for lease in leases)

    ends = upstream.topics.ends
    written = dict.fromkeys(ends, 0)
    for visit in range(1, len(POINTS) + 2):
        until = {tp: end * visit // (len(POINTS) + 1) for tp, end in ends.items()}
        record(tmp_path / "topics", upstream.topics, written, until)
        written = until
        wait_for(is_free, within_s=LEASE_MS / 1_000 + 10)
        if visit <= len(POINTS):
            code, output = processes.run(kill_at=POINTS[visit - 1])
            assert code == -signal.SIGKILL, output
        else:
            code, output = processes.run()
            assert code == 0, output

    history, commit = upstream.history(), 0
    for state in states(lake, TABLES):
        commit = history.index(state, commit)
    assert history[commit] == history[-1]
