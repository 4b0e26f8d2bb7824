"""Maintenance beside other writers and hold statements: one step that loses does not cost a table the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakehold.errors import LakeholdError
from lakehold.failpoints import Point
from lakehold.holds.commands import NewHold
from lakehold.maintenance.procedures import Procedures
from lakehold.times import now_ms
from tests.conftest import LakeFactory
from tests.spark.test_maintenance import NAME, NOW, OLD_S, hold, snapshots, table_of, times

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


def test_a_hold_made_just_before_the_expiry_keeps_its_history_and_the_rest_is_maintained(
    make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake(**NOW)
    table_of(lake)
    at = times(lake)
    hold(lake, at[2])
    lake.sql(f"ALTER HOLD kept ADVANCE TO {at[6]}")

    def hold_again(here: Point) -> None:
        if here == "after-untag":
            lake.holds.create(NewHold("late", None, (NAME,), at_ms=at[4]))

    monkeypatch.setattr("lakehold.maintenance.maintain.failpoint", hold_again)
    before = lake.sql(f"SUBSCRIBE {NAME} AS OF {at[4]}").rows
    (report,) = lake.maintain([NAME])
    assert (report.error, report.snapshots) == (None, 4)
    assert report.rewritten
    assert lake.sql(f"SUBSCRIBE {NAME} AS OF {at[4]}").rows == before
