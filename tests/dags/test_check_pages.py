"""The pages of checks in Airflow's UI: what does not exist is not found, and a lake that cannot be opened is unavailable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from lakehold.lake import connect
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

answers = [ask("shop.t", "1.html"), ask("shop.t", "2.html"), ask("no.such", "1.html"), ask("word", "1.html")]
os.environ["LAKEHOLD_LEASE_MS"] = "soon"
print("\\n".join([*answers, ask("shop.t", "1.html")]), file=sys.stderr)
"""


def test_a_page_that_does_not_exist_and_a_lake_that_cannot_be_opened_have_their_own_status(tmp_path: Path) -> None:
    warehouse = tmp_path / "lake"
    with connect(str(warehouse)) as lake:
        lake.catalog.create_namespace("shop")
        lake.catalog.create_table("shop.t", pa.schema([pa.field("id", pa.int64())]))
    pages = warehouse / "_checks" / "shop.t"
    pages.mkdir(parents=True)
    (pages / "1.html").write_text("passed")
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=ROOT,
        env=environment(tmp_path, warehouse=str(warehouse)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-5:] == [
        "passed",
        '404 there is no page "2.html" of checks of table "shop.t"',
        '404 there is no page "1.html" of checks of table "no.such"',
        '404 there is no page "1.html" of checks of table "word"',
        '503 setting "lease_ms" has a value that cannot be used',
    ]
