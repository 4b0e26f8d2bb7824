"""`lakehold maintain` as a process: its output, its exit code, and kills at every failpoint, which lose nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakehold.cli.maintain import COLUMNS
from lakehold.holds.commands import NewHold
from lakehold.lake import Lake
from lakehold.maintenance.file_layout import SMALL_FILES_MOST
from lakehold.session import SHORT_RUN_OPTIONS
from lakehold.timeline.versions import versions
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark

COMMAND = str(Path(sys.executable).with_name("lakehold"))
ENDS_WITHIN_S = 400
NAME = "shop.t"
NOW = {"foreign_lag_ms": 50, "retain_history_ms": 0, "expire_grace_ms": 0}


def run(lake: Lake, *arguments: str, kill_at: str = "", spark_remote: str = "") -> subprocess.CompletedProcess[str]:
    settings = {
        "WAREHOUSE": lake.settings.warehouse,
        "CATALOG_NAME": lake.settings.catalog_name,
        "SPARK_DRIVER_MEMORY": "1g",
        "SPARK_CONF": json.dumps({"spark.driver.extraJavaOptions": SHORT_RUN_OPTIONS}),
        "SPARK_REMOTE": spark_remote,
        "KILL_AT": kill_at,
        **{name.upper(): str(value) for name, value in NOW.items()},
    }
    return subprocess.run(
        [COMMAND, "maintain", *arguments],
        env={**os.environ, **{f"LAKEHOLD_{name}": value for name, value in settings.items() if value}},
        cwd=lake.settings.warehouse.removeprefix("file://"),
        capture_output=True,
        text=True,
        check=False,
        timeout=ENDS_WITHIN_S,
    )


@pytest.fixture
def held(make_lake: LakeFactory) -> tuple[Lake, list[int]]:
    """Make a lake with a table of many small files, held at its third version; return it with the times of its versions."""
    lake = make_lake(**NOW)
    lake.sql(
        f"CREATE NAMESPACE shop; CREATE TABLE {NAME} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '3')"
    )
    for number in range(SMALL_FILES_MOST + 1):
        lake.sql(f"INSERT INTO {NAME} VALUES ({number})")
    times = [version.mz_timestamp for version in versions(lake.catalog.load_table(NAME), None)]
    lake.holds.create(NewHold("kept", None, (NAME,), at_ms=times[2]))
    return lake, times


def test_a_maintenance_killed_at_any_failpoint_is_finished_by_the_next_one(
    held: tuple[Lake, list[int]], spark_connect: str
) -> None:
    lake, times = held
    lake.holds.advance("kept", times[4])
    before = lake.sql(f"SUBSCRIBE {NAME} AS OF {times[4]}").rows
    for point in ("after-tags", "after-untag", "after-expiry", "after-compaction"):
        assert run(lake, NAME, kill_at=point, spark_remote=spark_connect).returncode == -signal.SIGKILL, point
        assert lake.sql(f"SUBSCRIBE {NAME} AS OF {times[4]}").rows == before, point
    lake.sql(f"CALL system.expire_snapshots(table => '{NAME}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)")
    done = run(lake, NAME, "--format", "json")
    assert done.returncode == 0, done.stderr
    (row,) = map(json.loads, done.stdout.splitlines())
    assert tuple(row) == COLUMNS
    assert (row["table"], row["snapshots"], row["rewritten"]) == (NAME, 0, 0), "the killed processes did all work"
    assert lake.sql(f"SUBSCRIBE {NAME} AS OF {times[4]}").rows == before
    assert lake.sql(f"SELECT count(*) FROM {NAME}.files").rows == [(1,)]


@pytest.mark.soak
def test_two_concurrent_processes_succeed(held: tuple[Lake, list[int]]) -> None:
    lake, times = held
    before = lake.sql(f"SUBSCRIBE {NAME} AS OF {times[2]}").rows
    with ThreadPoolExecutor(2) as both:
        ends = list(both.map(lambda _: run(lake, NAME, "--orphans"), range(2)))
    assert [end.returncode for end in ends] == [0, 0], [end.stderr for end in ends]
    assert lake.sql(f"SUBSCRIBE {NAME} AS OF {times[2]}").rows == before
    assert len(lake.catalog.load_table(NAME).metadata.snapshots) == SMALL_FILES_MOST, "one rewrite, and two expired"


def test_a_dry_run_shows_its_plan_and_its_failures(held: tuple[Lake, list[int]]) -> None:
    lake, _ = held
    foreseen = run(lake, NAME, "shop.missing", "--dry-run", "--format", "csv")
    assert foreseen.returncode == 1
    header, row, missing = foreseen.stdout.splitlines()
    assert header == ",".join(COLUMNS)
    assert row.startswith(f"{NAME},")
    assert row.split(",")[2] == "2"
    assert missing == "shop.missing,,0,0,0,0,0,0,0"
    assert "2 tables: 2 snapshots," in foreseen.stderr
    assert "would go" in foreseen.stderr
    assert "code: table-missing" in foreseen.stderr
    assert len(lake.catalog.load_table(NAME).metadata.snapshots) == SMALL_FILES_MOST + 1
