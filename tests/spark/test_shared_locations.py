"""Maintenance deletes no orphans where another table or a view has its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakehold.lake import Lake
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.spark.test_maintenance import NAME, NOW, OLD_S, table_of

pytestmark = pytest.mark.spark


def grown_old(lake: Lake, full_name: str) -> None:
    location = lake.catalog.load_table(full_name).location()
    for path in Path(location.removeprefix("file://").removeprefix("file:")).rglob("*"):
        os.utime(path, (now_ms() / 1000 - OLD_S,) * 2)


@pytest.mark.parametrize("inner", ["shop.inner", f"{NAME}.inner"])
def test_files_of_a_table_inside_the_location_of_another_are_no_orphans(make_lake: LakeFactory, inner: str) -> None:
    lake = make_lake(**NOW)
    table_of(lake, batches=1)
    outer = lake.catalog.load_table(NAME).location()
    lake.sql(f"CREATE NAMESPACE IF NOT EXISTS {inner.rpartition('.')[0]}")
    lake.sql(f"CREATE TABLE {inner} USING iceberg LOCATION '{outer}/inner' AS SELECT 1 AS id")
    grown_old(lake, NAME)
    assert [report.orphans for report in lake.maintain([NAME], dry_run=True)] == [0]
    assert [report.orphans for report in lake.maintain([NAME])] == [0]
    assert lake.sql(f"SELECT id FROM {inner}").rows == [(1,)]
    lake.catalog.drop_table(inner)
    (report,) = lake.maintain([NAME])
    assert report.orphans > 1


def test_the_files_of_a_view_that_has_the_old_name_of_a_table_are_no_orphans(make_lake: LakeFactory) -> None:
    lake = make_lake(**NOW)
    table_of(lake, batches=1)
    lake.sql(f"ALTER TABLE {NAME} RENAME TO shop.raw; CREATE VIEW {NAME} AS SELECT id FROM shop.raw")
    rows = lake.sql(f"SELECT id FROM {NAME} ORDER BY id").rows
    grown_old(lake, "shop.raw")
    assert [(report.orphans, report.error) for report in lake.maintain(["shop.raw"])] == [(0, None)]
    assert lake.sql(f"SELECT id FROM {NAME} ORDER BY id").rows == rows
    assert lake.sql("SELECT id FROM shop.raw ORDER BY id").rows == rows
