"""A table that somebody drops while it is maintained is skipped, at whatever step, and the others are maintained."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakehold.holds.tags import TableTags
from lakehold.lake import Lake
from lakehold.maintenance.file_layout import SMALL_FILES_MOST
from lakehold.maintenance.maintain import Maintaining, MaintenanceReport
from lakehold.maintenance.procedures import Procedures
from tests.conftest import LakeFactory

pytestmark = pytest.mark.spark

DROPPED, OTHER = "shop.dropped", "shop.other"

STEPS: list[tuple[type[Any], str]] = [
    (TableTags, "_commit"),
    (Procedures, "expire_snapshots"),
    (Maintaining, "_rewrites"),
    (Procedures, "rewrite_data_files"),
    (Procedures, "remove_orphan_files"),
    (Procedures, "record_orphan_search"),
]


def table_of(lake: Lake, name: str) -> None:
    lake.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg; ALTER TABLE {name} SET (RETAIN HISTORY = '1 ms')")
    table = lake.catalog.load_table(name)
    with table.transaction() as transaction:
        for number in range(SMALL_FILES_MOST):
            transaction.append(pa.table({"id": [number]}))
    newest = table.metadata.last_updated_ms
    while lake.timelines.of([name])[name].upper_ms <= newest + 1:
        pass


def maintained(lake: Lake) -> dict[str, MaintenanceReport]:
    return {report.table: report for report in lake.maintain(orphans=True) if report.table in {DROPPED, OTHER}}


@pytest.mark.parametrize(("of", "step"), STEPS, ids=[step for _, step in STEPS])
def test_a_table_that_is_dropped_meanwhile_is_skipped(
    make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch, of: type[Any], step: str
) -> None:
    lake = make_lake(foreign_lag_ms=50, retain_history_ms=0, expire_grace_ms=0)
    lake.sql("CREATE NAMESPACE shop")
    for name in (DROPPED, OTHER):
        table_of(lake, name)
    if of is TableTags:
        lake.sql(f"CREATE HOLD kept ON {DROPPED}")
        lake.catalog.load_table(DROPPED).append(lake.catalog.load_table(OTHER).scan().to_arrow())
    run = getattr(of, step)

    def after_the_drop(self: Any, *arguments: Any, **options: Any) -> Any:
        if lake.catalog.table_exists(DROPPED):
            lake.catalog.drop_table(DROPPED)
        return run(self, *arguments, **options)

    monkeypatch.setattr(of, step, after_the_drop)
    reports = maintained(lake)
    assert not lake.catalog.table_exists(DROPPED), "the step was reached"
    assert (reports[DROPPED].error, getattr(reports[DROPPED].skipped, "code", None)) == (None, "table-missing")
    assert reports[OTHER].error is reports[OTHER].skipped is None
    assert reports[OTHER].rewritten == SMALL_FILES_MOST
