"""Values, rows and names of unusual size arrive unchanged, or become an error row that names the limit."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from lakehold.errors import LakeholdError
from lakehold.lake import Lake
from tests import recorded_files

pytestmark = pytest.mark.spark

MB = 2**20


def write(directory: Path, *values: Any) -> None:
    lines = [
        recorded_files.line("t", 0, at, json.dumps(value, ensure_ascii=False).encode(), None)
        for at, value in enumerate(values)
    ]
    recorded_files.append(directory / "t.jsonl", lines)


def rows(lake: Lake) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.catalog.load_table("s.t").scan().to_arrow().to_pylist()
    return found


def ingest(lake: Lake, directory: Path, columns: str) -> None:
    lake.sql(
        f"CREATE SOURCE feed FROM FILES '{directory}' FORMAT JSON;"
        f"CREATE TABLE s.t ({columns}) FROM SOURCE feed (TOPIC 't') KEY (id) ENVELOPE UPSERT"
    )
    for report in lake.ingest("feed"):
        for error in report.stopped.values():
            raise error


def test_large_values_arrive_and_larger_ones_are_error_rows_that_name_the_setting(lake: Lake, tmp_path: Path) -> None:
    text, content = "é" * (5 * MB), bytes(range(256)) * (6 * MB // 256)
    small = {"id": 3, "text": "small", "content": None}
    write(
        tmp_path / "topics",
        {"id": 1, "text": text, "content": None},
        {"id": 2, "text": None, "content": b64encode(content).decode()},
        {"id": 4, "text": "x" * (17 * MB), "content": None},
        small,
    )
    ingest(lake, tmp_path / "topics", "id BIGINT, text STRING, content BINARY")
    found = {row["id"]: row for row in rows(lake)}
    assert found.keys() == {1, 2, 3}
    assert found[1]["text"] == text
    assert found[2]["content"] == content
    assert found[3] == small
    errors = lake.sql("SELECT offset, detail FROM mz_catalog.mz_source_errors").rows
    assert [(at, "LAKEHOLD_MAX_RECORD_BYTES" in detail) for at, detail in errors] == [(2, True)]


def test_a_row_of_two_thousand_columns_arrives(lake: Lake, tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(2_000)]
    row = {"id": 1, **{name: number for number, name in enumerate(names)}}
    write(tmp_path / "topics", row)
    ingest(lake, tmp_path / "topics", ", ".join(["id BIGINT", *(f"{name} BIGINT" for name in names)]))
    assert rows(lake) == [row]


def test_json_of_two_hundred_levels_arrives_as_text(lake: Lake, tmp_path: Path) -> None:
    nested: Any = 1
    for _ in range(200):
        nested = {"a": [nested]}
    write(tmp_path / "topics", {"id": 1, "v": nested}, {"id": 2, "v": "plain"})
    ingest(lake, tmp_path / "topics", "id BIGINT, v STRING")
    found = {row["id"]: row["v"] for row in rows(lake)}
    assert json.loads(found[1]) == nested
    assert found[2] == "plain"


def test_a_column_may_have_a_name_of_three_hundred_characters(lake: Lake, tmp_path: Path) -> None:
    name = "n" * 300
    write(tmp_path / "topics", {"id": 1, name: 5})
    ingest(lake, tmp_path / "topics", f"id BIGINT, `{name}` BIGINT")
    assert rows(lake) == [{"id": 1, name: 5}]


def test_a_name_of_three_hundred_characters_that_is_part_of_a_path_is_refused(lake: Lake, tmp_path: Path) -> None:
    lake.sql(f"CREATE SOURCE feed FROM FILES '{tmp_path}' FORMAT JSON")
    with pytest.raises(LakeholdError, match="255"):
        lake.sql(f"CREATE TABLE `{'n' * 300}`.t FROM SOURCE feed (TOPIC 't') ENVELOPE NONE")
