"""Records of lakehold's own work: old ones are deleted, except the checks of existing holds."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from pyiceberg.catalog import load_catalog
from pyiceberg.io import load_file_io

from lakehold.iceberg.data_tables import DataTables
from lakehold.maintenance.procedures import Procedures
from lakehold.maintenance.record_expiry import Forgotten, Records
from lakehold.quality.pages import Pages
from lakehold.state.batch_protocol import BATCHES
from lakehold.state.hold_checks import HOLD_CHECKS, HoldCheck
from lakehold.state.holds import Check, HeldTable, Hold, HoldStore
from lakehold.state.objects import DefinitionStore
from lakehold.state.store import MemoryState

TABLE = HeldTable("t", "shop.t")
HELD = Hold("h1", "shop", "held", 1, (TABLE,), 1, Check.RECORD, "", 1)
CHECK = HoldCheck("h1", "shop.t", 1, 1, "generated", True, {}, (), "", 1)
OLD_MS = 1_000


def page(directory: Path, name: str) -> str:
    path = directory / f"{name}.html"
    path.write_text("page")
    os.utime(path, (OLD_MS / 1000, OLD_MS / 1000))
    return str(path)


def test_checks_and_pages_stay_as_long_as_a_reader_may_need_them(tmp_path: Path) -> None:
    checks, holds = MemoryState().log(HOLD_CHECKS), HoldStore(MemoryState())
    holds.change(lambda _: (HELD,))
    on_held, on_gone, without_hold, young = (
        replace(CHECK, hold_id="h1", html_path=page(tmp_path, "on held")),
        replace(CHECK, hold_id="h2", html_path=page(tmp_path, "on gone")),
        replace(CHECK, hold_id="", html_path=page(tmp_path, "same snapshot, checked again")),
        replace(
            CHECK, hold_id="h2", html_path=page(tmp_path, "same snapshot, checked again"), checked_at_ms=OLD_MS + 2
        ),
    )
    for check in (on_held, on_gone, without_hold, young):
        checks.append(check)
    page(tmp_path, "of another lake")
    records = Records(
        MemoryState().log(BATCHES),
        checks,
        Pages(f"file://{tmp_path}", load_file_io({})),
        DataTables(load_catalog("lake", type="in-memory")),
        holds,
        DefinitionStore(MemoryState()),
        Procedures(lambda statement: [{"never": statement}], "lake"),
    )
    before_ms = OLD_MS + 1
    assert records.forget("mz_catalog.mz_hold_checks", before_ms, dry_run=True) == Forgotten(rows=2, files=1)
    assert checks.values() == (on_held, on_gone, without_hold, young)
    assert records.forget("mz_catalog.mz_hold_checks", before_ms) == Forgotten(rows=2, files=1)
    assert checks.values() == (on_held, young)
    assert {path.stem for path in tmp_path.iterdir()} == {
        "on held",
        "same snapshot, checked again",
        "of another lake",
    }
    assert (
        records.forget("shop.t", before_ms) == records.forget("mz_catalog.mz_source_errors", before_ms) == Forgotten()
    )

    holds.change(lambda _: ())
    assert records.forget("mz_catalog.mz_hold_checks", before_ms) == Forgotten(rows=1, files=1)
