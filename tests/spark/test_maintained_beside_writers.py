"""Maintenance beside other writers: one step that loses does not cost a table the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakehold.errors import LakeholdError
from lakehold.maintenance.procedures import Procedures
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.spark.test_maintenance import NAME, NOW, OLD_S, snapshots, table_of

pytestmark = pytest.mark.spark


def test_a_compaction_that_always_loses_does_not_keep_old_snapshots_and_orphans(
    make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake(**NOW)
    table_of(lake)
    orphan = Path(lake.settings.warehouse.removeprefix("file://")) / "shop/t/data/a.parquet"
    orphan.write_bytes(b"left behind")
    os.utime(orphan, (now_ms() / 1000 - OLD_S,) * 2)
    tried: list[str] = []

    def lose(_: Procedures, full_name: str, *__: object, **___: object) -> int:
        tried.append(full_name)
        raise LakeholdError("Found new conflicting files that can contain records matching true", code="spark")

    monkeypatch.setattr(Procedures, "rewrite_data_files", lose)
    (report,) = lake.maintain([NAME])
    assert report.error is not None
    assert (report.error.code, len(tried)) == ("commit-conflict", 3)
    assert (report.orphans, report.rewritten, snapshots(lake)) == (1, 0, 1)
    assert not orphan.exists()
