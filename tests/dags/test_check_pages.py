"""The pages of checks in Airflow's UI: what does not exist is not found, and a lake that cannot be opened is unavailable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from lakehold.file_names import file_name_of
from lakehold.lake import connect
from lakehold.state.hold_checks import HoldCheck
from tests.airflow_process import ROOT, environment

ASK = """
import os, sys
from fastapi import HTTPException
from lakehold.orchestration.web import check

def ask(table, page):
    try:
        return check(table, page)
    except HTTPException as error:
        return f"{error.status_code} {error.detail.splitlines()[0]}"

asked = [("shop.t", 1), ("shop.t", 2), ("no.such", 1), ("word", 1), (sys.argv[1], 1)]
answers = [ask(table, f"{number}.html") for table, number in asked]
os.environ["LAKEHOLD_LEASE_MS"] = "soon"
print("\\n".join([*answers, ask("shop.t", "1.html")]), file=sys.stderr)
"""


def test_a_page_that_does_not_exist_and_a_lake_that_cannot_be_opened_have_their_own_status(tmp_path: Path) -> None:
    warehouse, odd = tmp_path / "lake", "shop." + "t" * 240
    with connect(str(warehouse)) as lake:
        lake.catalog.create_namespace("shop")
        for name in ("shop.t", odd):
            lake.catalog.create_table(name, pa.schema([pa.field("id", pa.int64())]))
        lake.checks.kept.append(HoldCheck("", odd, None, 1, "generated", True, {}, (), "1.html", 1))
    for name in ("shop.t", odd):
        pages = warehouse / "_checks" / file_name_of(name)
        pages.mkdir(parents=True)
        (pages / "1.html").write_text(f"page of {name}")
    done = subprocess.run(
        [sys.executable, "-c", ASK, file_name_of(odd)],
        cwd=ROOT,
        env=environment(tmp_path, warehouse=str(warehouse)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-6:] == [
        "page of shop.t",
        '404 there is no page "2.html" of checks of table "shop.t"',
        '404 there is no page "1.html" of checks of table "no.such"',
        '404 there is no page "1.html" of checks of table "word"',
        f"page of {odd}",
        '503 setting "lease_ms" has a value that cannot be used',
    ]
