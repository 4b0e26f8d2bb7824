"""Tables that merge concurrently record errors in one table without conflicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakehold.lake import Lake
from tests import recorded_files
from tests.conftest import LakeFactory

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
