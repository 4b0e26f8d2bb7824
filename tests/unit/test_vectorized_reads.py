"""Large files, which a process reads vectorized as far as its heap allows (see `lakehold.tables.vectorized`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from lakehold.iceberg.data_tables import SnapshotState, TableState
from lakehold.tables.vectorized import ROWS_PER_FILE, VectorizedReads


def table(summary: dict[str, str] | None) -> TableState:
    """Return a table whose current snapshot has `summary`, or without a snapshot if that is None."""
    state = TableState("s.t", 3, Schema(), {}, cast("Table", SimpleNamespace()))
    state.__dict__["current"] = None if summary is None else SnapshotState(1, 1, 0, summary)
    return state


def of_files(files: int, rows_per_file: int = ROWS_PER_FILE) -> TableState:
    return table({"total-data-files": str(files), "total-records": str(files * rows_per_file)})


def test_small_files_are_read_row_by_row_and_do_not_count() -> None:
    reads = VectorizedReads(files=10)
    assert [reads.take(of_files(8, ROWS_PER_FILE - 1)) for _ in range(3)] == [False] * 3
    assert reads.take(of_files(10))


def test_large_files_are_read_vectorized_until_the_process_reaches_its_share() -> None:
    reads = VectorizedReads(files=10)
    assert [reads.take(of_files(4)) for _ in range(4)] == [True, True, False, False]
    assert reads.take(of_files(2)), "two reads are left"
    assert not reads.take(of_files(1))


def test_a_table_without_counts_of_its_files_is_read_row_by_row() -> None:
    reads = VectorizedReads(files=10)
    assert not reads.take(table(None))
    assert not reads.take(table({}))
    assert not reads.take(table({"total-records": "1000000"}))
    assert not reads.take(of_files(0))
