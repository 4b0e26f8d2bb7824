"""Messages by which catalogs and procedures report that another writer committed first."""

from __future__ import annotations

import pytest

from lakehold.maintenance.procedures import is_file_gone
from lakehold.spark_errors import is_conflict


@pytest.mark.parametrize(
    "message",
    [
        "cannot commit shop.t: metadata location file:/a/0-a.metadata.json has changed from file:/a/1-b.metadata.json",
        "org.apache.iceberg.exceptions.CommitFailedException: Requirement failed: branch main has changed: expected id 1 != 2",
        "org.apache.iceberg.exceptions.CommitFailedException: Table metadata refresh is required",
        "missing required files to delete: file:/a/b.parquet",
        "Cannot expire 7. Still referenced by refs: [hold_a, mz_1]",
        "Found new conflicting files that can contain records matching true",
    ],
)
def test_a_lost_commit_is_a_conflict(message: str) -> None:
    assert is_conflict(message)


@pytest.mark.parametrize(
    "message",
    [
        "failed to open input stream for file: file:/a/snap-1.avro",
        "org.apache.iceberg.exceptions.RuntimeIOException: Failed to open file: file:/a/snap-1.avro",
        "cannot read manifest list file: file:/a/snap-1.avro",
    ],
)
def test_a_file_that_another_maintenance_deleted_is_recognized(message: str) -> None:
    assert is_file_gone(message)
    assert not is_conflict(message)


def test_other_errors_are_no_conflict() -> None:
    message = "Cannot expire snapshots: GC is disabled"
    assert not is_conflict(message)
    assert not is_file_gone(message)
