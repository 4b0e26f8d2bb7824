"""History in a lake: it stays in order and in few files, and old rows are deleted without reading young ones."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

from lakehold.state import iceberg_state
from lakehold.state.holds import HOLD_OBJECTS, HoldObject
from lakehold.state.iceberg_state import IcebergState
from lakehold.state.store import Log

NAME = HOLD_OBJECTS.table
"""A table of three texts, whose second column serves as a time here."""


@pytest.fixture
def log(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Log[HoldObject]:
    """Return a log of rows 0 to 29 with two large files, [0, 8) and [8, 22), and two small ones, [22, 29) and [29, 30)."""
    monkeypatch.setattr(iceberg_state, "MANIFESTS_MOST", 7)
    monkeypatch.setattr(iceberg_state, "SMALL_FILE_RECORDS", 8)
    made = IcebergState(catalog).log(HOLD_OBJECTS)
    for number in range(30):
        made.append(row(number))
    return made


def row(number: int) -> HoldObject:
    return HoldObject(f"h{number}", f"{number:02}", "t")


def numbers(log: Log[HoldObject]) -> list[int]:
    return [int(found.on_id) for found in log.values()]


def forget(log: Log[HoldObject], before: int, *kept: int) -> int:
    return log.forget("on_id", f"{before:02}", lambda found: int(found.on_id) in kept)  # type: ignore[arg-type]


def sizes(catalog: Catalog) -> list[int]:
    return [task.file.record_count for task in catalog.load_table(NAME).scan().plan_files()]


def test_a_log_is_kept_in_few_files(log: Log[HoldObject], catalog: Catalog) -> None:
    assert numbers(log) == list(range(30))
    assert sorted(sizes(catalog)) == [1, 7, 8, 14]


def test_large_files_are_deleted_as_a_whole_and_small_ones_row_by_row(log: Log[HoldObject], catalog: Catalog) -> None:
    assert forget(log, 12) == 8
    assert numbers(log) == list(range(8, 30))
    assert forget(log, 21) == 0
    assert forget(log, 22) == 14
    assert forget(log, 27, 25) == 4
    assert numbers(log) == [25, 27, 28, 29]
    assert sizes(catalog) == [4]
    log.append(row(30))
    assert numbers(log) == [25, 27, 28, 29, 30]


def test_young_rows_are_not_read(log: Log[HoldObject], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_state, "_read_rows", lambda *_: pytest.fail("a file was read"))
    assert forget(log, 0) == 0


def test_all_rows_may_be_deleted(log: Log[HoldObject]) -> None:
    assert forget(log, 99) == 30
    assert numbers(log) == []
    assert forget(log, 99) == 0


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of rows of each file that is opened from then on."""
    counts, parquet_file = list[int](), pq.ParquetFile

    def counted(content: object) -> pq.ParquetFile:
        file = parquet_file(content)
        counts.append(file.metadata.num_rows)
        return file

    monkeypatch.setattr(pq, "ParquetFile", counted)
    return counts


def test_recent_rows_are_read_without_the_files_of_older_ones(log: Log[HoldObject], opened: list[int]) -> None:
    opened.clear()
    recent = log.recent("on_id", "24")  # type: ignore[arg-type]
    assert [int(found.on_id) for found in recent] == list(range(24, 30))
    assert sorted(opened) == [1, 7]


def test_a_small_file_is_read_once(log: Log[HoldObject], catalog: Catalog, opened: list[int]) -> None:
    reader = IcebergState(catalog).log(HOLD_OBJECTS)
    opened.clear()
    assert numbers(reader) == list(range(30))
    assert sorted(opened) == [1, 7, 8, 14]
    log.append(row(30))
    opened.clear()
    assert numbers(reader) == list(range(31))
    assert sorted(opened) == [1, 8, 14]
    log.forget("on_id", "31", lambda _: False)  # type: ignore[arg-type]
    assert numbers(reader) == []
