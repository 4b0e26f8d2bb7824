"""`make airflow` as a new user runs it: a live scheduler brings changes to tables, outputs and checks on its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import httpx
import pytest

from lakehold.state.hold_checks import HOLD_CHECKS
from lakehold.state.iceberg_state import IcebergState
from lakehold.times import now_ms
from tests.airflow_live import ANSWERS_WITHIN_S, LiveAirflow, live_airflow
from tests.runnable_pages import checked
from tests.stack_fixtures import open_directory

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAirflow]:
    with (
        open_directory() as stack_directory,
        live_airflow(tmp_path_factory.mktemp("airflow"), stack_directory) as found,
    ):
        yield found


def test_the_page_shows_the_command_that_these_tests_run() -> None:
    assert checked("docs/airflow.md", __file__) == ["make airflow\n"]


def test_changes_go_from_postgres_to_tables_outputs_and_checks(live: LiveAirflow) -> None:
    first = live.lake.timelines.of(["shop.orders"])["shop.orders"].upper_ms
    live.wait_for(lambda: any(run["state"] == "success" for run in live.runs("lakehold_ingest")))
    assert live.lake.timelines.of(["shop.orders"])["shop.orders"].upper_ms > first

    def started_by_tables(dag_id: str) -> bool:
        return any(run["state"] == "success" and run["run_type"] == "asset_triggered" for run in live.runs(dag_id))

    live.wait_for(lambda: started_by_tables("lakehold_subscriptions") and started_by_tables("lakehold_quality"))
    (row,) = live.lake.sql("SHOW SUBSCRIPTIONS").rows
    assert "order_changes" in row
    output = live.lake.catalog.load_table("bi.order_changes")
    position_ms = int(output.properties["lakehold.position"])
    assert position_ms > first
    rows = output.scan(selected_fields=("mz_timestamp",)).to_arrow()["mz_timestamp"].to_pylist()
    assert max(rows) < position_ms
    checked = {check.table for check in IcebergState(live.lake.catalog).log(HOLD_CHECKS).values() if not check.hold_id}
    assert checked == {"shop.customers", "shop.order_items", "shop.orders"}
    live.wait_for(lambda: any(run["state"] == "success" for run in live.runs("lakehold_holds")))

    page = httpx.get(f"{live.url}/lakehold/", timeout=ANSWERS_WITHIN_S, follow_redirects=True)
    assert page.status_code == 200
    assert "shop.orders" in page.text
    assert f"{live.url}/dags/lakehold_maintenance" in page.text
    verdict = next(part for part in page.text.split('href="') if "/lakehold/checks/shop.orders/" in part).split('"')[0]
    assert "shop.orders" in httpx.get(verdict, timeout=ANSWERS_WITHIN_S).raise_for_status().text
    assert httpx.get(f"{live.url}/lakehold/checks/..%2f..%2fcatalog.db/x", timeout=ANSWERS_WITHIN_S).status_code in {
        404,
        422,
    }


def test_the_home_page_shows_nothing_red(live: LiveAirflow) -> None:
    answer = httpx.get(f"{live.url}/api/v2/monitor/health", timeout=ANSWERS_WITHIN_S).raise_for_status().json()
    parts = ("metadatabase", "scheduler", "triggerer", "dag_processor")
    assert {name: part["status"] for name, part in answer.items()} == dict.fromkeys(parts, "healthy")


def test_a_worker_killed_amid_a_batch_loses_nothing(live: LiveAirflow) -> None:
    live.wait_for(lambda: any(run["state"] == "success" for run in live.runs("lakehold_ingest")))
    killed: list[int] = []

    def kill() -> bool:
        holder = live.holder()
        if holder is not None:
            os.kill(holder, signal.SIGKILL)
            killed.append(holder)
        return bool(killed)

    live.wait_for(kill)
    arrive_once(live, now_ms())


def test_a_scheduler_killed_amid_a_batch_loses_nothing(live: LiveAirflow) -> None:
    live.wait_for(lambda: live.holder() is not None)
    before = len(live.runs("lakehold_ingest"))
    live.kill_scheduler()
    arrive_once(live, now_ms())
    live.wait_for(lambda: [run["state"] for run in live.runs("lakehold_ingest")[before:]].count("success") > 0)


def arrive_once(live: LiveAirflow, before_ms: int) -> None:
    """Wait until the lake has all orders of before a time, and check that it has each once."""

    def arrived() -> bool:
        upstream, in_lake = live.orders(before_ms)
        assert len(upstream) > 20, "most orders remain unchanged for a while"
        return upstream <= in_lake

    live.wait_for(arrived)
    assert live.lake.sql("SELECT count(*) - count(DISTINCT id) FROM shop.orders").rows == [(0,)]
