"""The choice of files that are worth rewriting, and the calls of Iceberg's procedures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent, FileFormat

from lakehold.maintenance.file_layout import (
    MANIFESTS_MOST,
    SMALL_FILE_BYTES,
    SMALL_FILES_MOST,
    Rewrite,
    has_few_files,
    rewrite_of,
)
from lakehold.maintenance.procedures import Expired, Procedures
from lakehold.subscribe.live_files import LiveFile

FILE = LiveFile("f", FileFormat.PARQUET, DataFileContent.DATA, 0, (1,), records=100, size_bytes=10, sequence_number=1)
VECTOR = FILE._replace(
    path="v", format=FileFormat.PUFFIN, content=DataFileContent.POSITION_DELETES, offset=4, length_bytes=40
)


def files(count: int, **what: Any) -> list[LiveFile]:
    return [FILE._replace(path=f"f{number}{what}", **what) for number in range(count)]


def test_small_files_are_gathered_once_a_partition_has_enough_of_them() -> None:
    some = files(SMALL_FILES_MOST - 1, partition=(2,))
    assert rewrite_of([*some, *files(SMALL_FILES_MOST - 1)], [], 1, {}) == Rewrite()
    found = rewrite_of([*some, *files(SMALL_FILES_MOST)], [], 1, {})
    assert (found.data_files, found.rewritten_bytes) == (SMALL_FILES_MOST, SMALL_FILES_MOST * 10)


@pytest.mark.parametrize(
    ("data", "deletes", "are_few"),
    [(SMALL_FILES_MOST - 1, 0, True), (SMALL_FILES_MOST, 0, False), (1, 1, False), (1, None, False), (None, 0, False)],
)
def test_a_summary_with_few_files_shows_that_none_is_worth_rewriting(
    data: int | None, deletes: int | None, are_few: bool
) -> None:
    counts = {"total-data-files": data, "total-delete-files": deletes}
    assert has_few_files({name: str(count) for name, count in counts.items() if count is not None}) == are_few
    assert not are_few or rewrite_of(files(data or 0), [], data or 0, {}) == Rewrite()


def test_large_files_stay_as_they_are() -> None:
    assert rewrite_of(files(100, size_bytes=SMALL_FILE_BYTES), [], 1, {}).data_files == 0


def test_files_below_three_quarters_of_the_target_size_are_small() -> None:
    properties = {"write.target-file-size-bytes": "1000"}
    assert rewrite_of(files(100, size_bytes=750), [], 1, properties).data_files == 0
    assert rewrite_of(files(100, size_bytes=749), [], 1, properties).small_below_bytes == 750


@pytest.mark.parametrize(("deleted", "thinned"), [(29, 0), (30, 1)])
def test_a_file_is_rewritten_when_much_of_it_is_deleted(deleted: int, thinned: int) -> None:
    large = FILE._replace(size_bytes=SMALL_FILE_BYTES)
    found = rewrite_of([large], [VECTOR._replace(referenced="f", records=deleted)], 1, {})
    assert found.deleted_files == thinned


def test_files_of_position_deletes_and_manifests_are_gathered_when_they_are_many() -> None:
    deletes = files(SMALL_FILES_MOST, content=DataFileContent.POSITION_DELETES)
    vectors = [VECTOR._replace(offset=number) for number in range(100)]
    found = rewrite_of([FILE], [*deletes, *vectors], MANIFESTS_MOST, {})
    assert (found.delete_files, found.manifests) == (SMALL_FILES_MOST, MANIFESTS_MOST)
    assert rewrite_of([FILE], vectors, MANIFESTS_MOST - 1, {}) == Rewrite()


def test_one_file_of_position_deletes_for_each_data_file_is_not_compacted() -> None:
    data = files(SMALL_FILES_MOST * 2, size_bytes=SMALL_FILE_BYTES)
    deletes = files(SMALL_FILES_MOST * 2, content=DataFileContent.POSITION_DELETES, records=1)
    each = [delete._replace(referenced=file.path) for file, delete in zip(data, deletes, strict=True)]
    assert rewrite_of(data, each, 1, {}) == Rewrite()
    assert rewrite_of(data, [*each, *each[1:SMALL_FILES_MOST]], 1, {}) == Rewrite()
    assert rewrite_of(data, [*each, *each[:SMALL_FILES_MOST]], 1, {}).delete_files == SMALL_FILES_MOST * 3
    gone = [delete._replace(referenced=f"gone-{delete.path}") for delete in deletes[:SMALL_FILES_MOST]]
    assert rewrite_of(data, gone, 1, {}).delete_files == SMALL_FILES_MOST


def called(version: str) -> tuple[Procedures, list[str]]:
    statements: list[str] = []

    def call(statement: str) -> Sequence[Mapping[str, Any]]:
        statements.append(statement)
        counts = {"data_files": 2, "manifests": None, "manifest_lists": 1}
        return [{"version": version} | {f"deleted_{what}_count": count for what, count in counts.items()}]

    return Procedures(call, "lake"), statements


def test_exactly_the_snapshots_given_are_expired() -> None:
    procedures, statements = called("1.12.0")
    assert procedures.expire_snapshots("shop.it's", [7, 8]) == Expired(files=3, manifest_lists=1)
    assert statements == [
        r"CALL `lake`.`system`.`expire_snapshots`(table => '`shop`.`it\'s`', "
        "snapshot_ids => array(7L, 8L), older_than => TIMESTAMP_LTZ'1970-01-01 00:00:00+00:00')"
    ]


@pytest.mark.parametrize(
    ("version", "format_version", "safe"),
    [("1.12.0", 3, True), ("1.11.0", 3, False), ("1.11.0", 2, True), ("2.0", 3, True)],
)
def test_manifests_are_left_alone_where_gathering_them_would_lose_row_ids(
    version: str, format_version: int, safe: bool
) -> None:
    procedures, _ = called(version)
    assert procedures.rewrites_manifests_safely(format_version) == safe
