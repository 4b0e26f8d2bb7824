"""Tables that merge concurrently record errors in one table without conflicts."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread, current_thread

import pytest

from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.ingest.deduplicate.carriers import COUNTS
from lakehold.ingest.envelope.change_columns import KEY_BYTES, OFFSET, OP, PARTITION
from lakehold.ingest.read.reader import MalformedLine
from lakehold.ingest.write import error_records
from lakehold.ingest.write.batch_effects import BatchIdentity
from lakehold.ingest.write.error_records import ErrorRecords
from lakehold.lake import Lake
from tests import recorded_files
from tests.conftest import LakeFactory
from tests.unit.test_high_water_marks import NOTHING
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

TABLES = [f"t{number}" for number in range(6)]


def write(file: Path, offset: int, n: int | str) -> None:
    """Append a message for each table, whose column `n` holds integers."""
    lines = [
        recorded_files.line(name, 0, offset, json.dumps({"k": 1, "n": n}).encode(), json.dumps({"k": 1}).encode())
        for name in TABLES
    ]
    recorded_files.append(file, lines)


def errors(lake: Lake) -> dict[str, list[bool]]:
    """Return for each table whether its errors are healed, in order of offsets."""
    rows = lake.sql(
        "SELECT table_name, offset, healed_at FROM mz_catalog.mz_source_errors ORDER BY table_name, offset"
    ).rows
    found: dict[str, list[bool]] = {}
    for name, _, healed_at in rows:
        found.setdefault(name, []).append(healed_at is not None)
    return found


def test_bad_messages_of_all_tables_are_recorded_and_healed_concurrently(
    make_lake: LakeFactory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="lakehold.ingest.write.error_records")
    lake = make_lake(tables_at_once=len(TABLES))
    file = tmp_path / "topics" / "all.jsonl"
    write(file, 0, 1)
    lake.sql(f"CREATE SOURCE many FROM FILES '{file.parent}' FORMAT JSON")
    for name in TABLES:
        lake.sql(f"CREATE TABLE many.{name} (k BIGINT, n BIGINT) FROM SOURCE many (TOPIC '{name}') ENVELOPE UPSERT")
    lake.ingest("many")
    for offset in (1, 2):
        write(file, offset, "not a number")
        (report,) = (report for report in lake.ingest("many") if report.records)
        assert not report.stopped
    assert errors(lake) == {f"many.{name}": [False, False] for name in TABLES}

    write(file, 3, 2)
    (report,) = (report for report in lake.ingest("many") if report.records)
    assert not report.stopped
    assert errors(lake) == {f"many.{name}": [True, True] for name in TABLES}
    repeated = [each.getMessage() for each in caplog.records if each.name.endswith("error_records")]
    assert repeated == [], "no commit was repeated"
    assert [lake.sql(f"SELECT n FROM many.{name}").rows for name in TABLES] == [[(2,)]] * len(TABLES)


def test_a_table_that_heals_and_one_that_records_do_not_wait_for_each_other(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let two tables of one session meet: one records an error, and the other begins to heal an error of its own."""
    spark, batch = lake.spark, BatchIdentity("many", 1, "")
    lake.sql(
        "CREATE SOURCE many FROM FILES '/x' FORMAT JSON;"
        "CREATE TABLE many.t FROM SOURCE many (TOPIC 't') ENVELOPE UPSERT"
    )
    table = lake.definitions.definitions().table("many.t").definition
    good = spark.sql(f"SELECT true AS {COUNTS}, 'u' AS {OP}, X'01' AS {KEY_BYTES}, 0L AS {OFFSET}, 0 AS {PARTITION}")
    records = ErrorRecords(lambda: spark, lake.settings.catalog_name, lake.tables)
    records.record_malformed(BatchIdentity("many", 0, ""), [MalformedLine("file", 1, 0, b"x", "no JSON")])
    is_recording, read = Event(), DataTables.table_state

    def heal() -> None:
        records.record(batch, table, good, good, replace(NOTHING, records=1), 1, heals=True)

    def record() -> None:
        records.record_malformed(batch, [MalformedLine("file", 2, 2, b"y", "no JSON")])

    recording, healing = Thread(target=record, daemon=True), Thread(target=heal, daemon=True)

    def after_the_other_waits(tables: DataTables, full_name: str) -> TableState | None:
        if current_thread() is recording:
            is_recording.set()
            wait_for(lambda: is_waiting(healing), "the other table")
        return read(tables, full_name)

    monkeypatch.setattr(DataTables, "table_state", after_the_other_waits)
    recording.start()
    assert is_recording.wait(60)
    healing.start()
    for thread in (recording, healing):
        thread.join(60)
        assert not thread.is_alive(), "the tables wait for each other"
    assert lake.sql("SELECT offset FROM mz_catalog.mz_source_errors ORDER BY offset").rows == [(0,), (2,)]


def is_waiting(thread: Thread) -> bool:
    """Return whether a thread waits in the records of errors themselves, not in Spark."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_filename == error_records.__file__
