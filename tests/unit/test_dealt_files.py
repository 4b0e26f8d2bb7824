"""Files that Spark reads are dealt to tasks so that its cores have about as many rows, however few files there are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFileContent, FileFormat
from pyroaring import BitMap64

from lakehold.subscribe.changed_rows import RowSelection
from lakehold.subscribe.file_rows import DatedSelection
from lakehold.subscribe.live_files import LiveFile
from lakehold.subscribe.on_spark import dealt

Files = Sequence[Sequence[DatedSelection]]


def files_of(sizes: list[int]) -> Files:
    found = []
    for number, size in enumerate(sizes):
        file = LiveFile(f"file {number}", FileFormat.PARQUET, DataFileContent.DATA, 0, (), size, 0, 1)
        removed = RowSelection(file, -1, BitMap64([0]))
        found.append([DatedSelection(1, RowSelection(file, 1)), DatedSelection(2, removed)])
    return found


def rows_of(files: Files) -> int:
    return sum(dated.selection.rows for file in files for dated in file)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=40), st.integers(1, 12))
def test_each_file_is_in_one_task_and_no_task_waits_for_more_than_a_file(sizes: list[int], most: int) -> None:
    files = files_of(sizes)
    tasks = dealt(files, most)
    assert len(tasks) == min(most, len(files))
    assert all(tasks)
    assert sorted(map(id, (file for task in tasks for file in task))) == sorted(map(id, files))
    loads = [rows_of(task) for task in tasks]
    assert max(loads) - min(loads) <= max(sizes) + 1


@pytest.mark.parametrize("cores", [2, 4, 8])
@given(st.lists(st.integers(1, 500), min_size=8, max_size=40))
def test_each_core_of_few_has_its_share_of_few_tasks(cores: int, sizes: list[int]) -> None:
    tasks = dealt(files_of(sizes), 8)
    loads = [
        sum(map(rows_of, tasks[len(tasks) * core // cores : len(tasks) * (core + 1) // cores])) for core in range(cores)
    ]
    assert max(loads) - min(loads) <= max(sizes) + 1


def test_two_large_files_among_small_ones_are_read_by_two_cores() -> None:
    tasks = dealt(files_of([1, 500, 1, 500]), 8)
    assert [rows_of(task) for task in tasks] == [501, 2, 501, 2]
