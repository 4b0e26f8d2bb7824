"""`lakehold ingest` of several sources prints a row for each table and reports a failing source beside the others' work."""

from __future__ import annotations

import io
import json
import os
import signal
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from lakehold.cli.app import app
from lakehold.cli.command_output import JsonOutput
from lakehold.cli.ingest import run_ingest
from lakehold.lake import Lake
from lakehold.progress import NoProgress
from lakehold.state.lease import leased
from tests.catalog_outage import catalog_outage
from tests.shop_records import ShopRecords
from tests.waiting import wait_for

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(lake: Lake, tmp_path: Path) -> ShopRecords:
    """Define `shop.orders`, and `billing.orders` over the same topic."""
    found = ShopRecords(lake, tmp_path / "topics")
    lake.sql(f"CREATE SOURCE billing FROM FILES '{found.directory}' FORMAT JSON")
    lake.sql("CREATE TABLE billing.orders (id BIGINT, v STRING) FROM SOURCE billing (TOPIC 'orders') ENVELOPE UPSERT")
    lake.sql(f"CREATE SOURCE empty FROM FILES '{found.directory}' FORMAT JSON")
    found.write("orders", (1, "new"), (2, "new"))
    return found


def ingest(lake: Lake, *sources: str, follow: bool = False) -> tuple[bool, list[dict[str, Any]], str]:
    """Run the command for `sources`, by default all; return whether all succeeded, the rows, and stderr."""
    rows, notices = io.StringIO(), io.StringIO()
    code = run_ingest(lake, sources or None, JsonOutput(rows, notices), NoProgress(), follow=follow)
    return code == 0, [json.loads(line) for line in rows.getvalue().splitlines()], notices.getvalue()


def test_all_sources_with_tables_are_ingested(lake: Lake, shop: ShopRecords) -> None:
    healthy, rows, notices = ingest(lake)
    assert (healthy, notices) == (True, "")
    assert {row["table"]: row["inserted"] for row in rows} == {"billing.orders": 2, "shop.orders": 2}
    shop.write("orders", (3, "new"))
    assert [row["table"] for row in ingest(lake, "shop", "billing")[1]] == ["shop.orders", "billing.orders"]


@pytest.mark.usefixtures("shop")
def test_a_failing_source_is_named_and_the_others_go_on(lake: Lake) -> None:
    with leased(lake.batches, "billing", lake.settings):
        healthy, rows, notices = ingest(lake, "billing", "shop")
    assert (healthy, [row["table"] for row in rows]) == (False, ["shop.orders"])
    assert notices.startswith("notice: source billing was not ingested\nerror: ")
    assert "code: source-busy" in notices


@pytest.mark.usefixtures("shop")
def test_following_outlives_a_busy_source_and_skips_an_unreadable_one(lake: Lake) -> None:
    def watched() -> None:
        """Interrupt like Ctrl-C once the table exists."""
        wait_for(lambda: lake.catalog.table_exists("billing.orders"), within_s=60)
        os.kill(os.getpid(), signal.SIGINT)

    watching = Thread(target=watched)
    watching.start()
    with leased(lake.batches, "shop", lake.settings):
        healthy, rows, notices = ingest(lake, "empty", "shop", "billing", follow=True)
    watching.join()
    assert (healthy, [row["table"] for row in rows]) == (False, ["billing.orders"])
    assert notices.count("source empty was not ingested") == 1
    assert "code: source-without-tables" in notices
    assert "code: source-busy" in notices


def test_following_outlives_a_catalog_that_does_not_answer(lake: Lake, shop: ShopRecords) -> None:
    rows, notices = io.StringIO(), io.StringIO()

    def watched() -> None:
        """Write while the catalog is away, and interrupt when both sources have that."""
        try:
            wait_for(lambda: {"shop.orders", "billing.orders"} <= {*tables_in(rows)})
            with catalog_outage(lake):
                shop.write("orders", (3, "late"))
                wait_for(lambda: "code: catalog-unavailable" in notices.getvalue())
            wait_for(lambda: len(tables_in(rows)) == 4)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    watching = Thread(target=watched)
    watching.start()
    assert run_ingest(lake, ["shop", "billing"], JsonOutput(rows, notices), NoProgress(), follow=True) == 0
    watching.join()
    assert sorted(tables_in(rows)) == [*["billing.orders"] * 2, *["shop.orders"] * 2]


def tables_in(rows: io.StringIO) -> list[str]:
    return [json.loads(line)["table"] for line in rows.getvalue().splitlines()]


@pytest.mark.parametrize("arguments", [[], ["shop", "--all"]])
def test_either_names_or_all_are_required(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["ingest", *arguments])
    assert result.exit_code == 2
    assert "name sources, or say --all" in result.output
