"""`make airflow` as a new user has it: a live scheduler, and changes that arrive everywhere with nobody touching anything."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from lakehold.catalog.hold_checks import PyIcebergHoldChecks
from lakehold.lake import Lake, connect
from lakehold.times import now_ms
from tests.airflow_process import ROOT
from tests.lakehold_process import wait_until
from tests.spark_connect import free_port
from tests.stack_fixtures import open_directory

pytestmark = [pytest.mark.stack, pytest.mark.spark]

Row = tuple[Any, ...]

STARTS_WITHIN_S = 600
ARRIVES_WITHIN_S = 600
STOPS_WITHIN_S = 120
ANSWERS_WITHIN_S = 120


@dataclass
class LiveAirflow:
    """The running demo."""

    process: subprocess.Popen[str]
    url: str
    postgres: str
    lake: Lake

    def get(self, path: str, **query: Any) -> Any:
        with httpx.Client(base_url=self.url, timeout=ANSWERS_WITHIN_S) as client:
            token = client.get("/auth/token").raise_for_status().json()["access_token"]
            headers = {"Authorization": f"Bearer {token}"}
            return client.get(f"/api/v2{path}", params=query, headers=headers).raise_for_status().json()

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"/dags/{dag_id}/dagRuns", order_by="start_date")["dag_runs"]
        return found

    def wait_for(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            assert self.process.poll() is None, "it goes on until Ctrl-C"
            return condition()

        wait_until(holds, within_s=ARRIVES_WITHIN_S)

    def owner(self) -> int | None:
        """Id of the process that is in a batch now."""
        leases = {state.lease for state in self.lake.batches.readers("shop").values() if state.lease is not None}
        return next((int(lease.owner.split(":")[1]) for lease in leases), None)

    def orders(self, before_ms: int) -> tuple[set[Row], set[Row]]:
        """Orders that have not changed since a time: as PostgreSQL has them, and as the lake has them now."""
        when = f"changed_at < to_timestamp({before_ms} / 1000.0)"
        with psycopg.connect(self.postgres) as connection:
            statement = f"SELECT id, status::text, total::text FROM orders WHERE {when}"
            upstream = {*connection.execute(statement.encode()).fetchall()}
        return upstream, {*self.lake.sql("SELECT id, status, CAST(total AS STRING) FROM shop.orders").rows}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAirflow]:
    directory = tmp_path_factory.mktemp("airflow")
    port = free_port()
    command = [str(Path(sys.executable).with_name("lakehold")), "demo", "--airflow", "--port", str(port)]
    said = directory / "said"
    with open_directory() as stack_directory:
        with said.open("w") as output:
            process = subprocess.Popen(
                [*command, "--directory", str(directory / "demo")],
                cwd=ROOT,
                env={**os.environ, "LAKEHOLD_STACK_DIR": stack_directory},
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        try:
            wait_until(
                lambda: "Airflow is at" in said.read_text() or process.poll() is not None, within_s=STARTS_WITHIN_S
            )
            assert process.poll() is None, said.read_text()[-3_000:]
            (postgres,) = re.findall(r"PostgreSQL has a shop: (\S+)", said.read_text())
            with connect(str(directory / "demo" / "lake")) as lake:
                yield LiveAirflow(process, f"http://127.0.0.1:{port}", postgres, lake)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            code = process.wait(STOPS_WITHIN_S)
        assert code == 0, said.read_text()[-3_000:]


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
    checked = {check.table for check in PyIcebergHoldChecks(live.lake.catalog).checks() if not check.hold_id}
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


def test_a_worker_that_is_killed_in_mid_batch_loses_nothing(live: LiveAirflow) -> None:
    live.wait_for(lambda: any(run["state"] == "success" for run in live.runs("lakehold_ingest")))
    killed: list[int] = []

    def kill() -> bool:
        owner = live.owner()
        if owner is not None:
            os.kill(owner, signal.SIGKILL)
            killed.append(owner)
        return bool(killed)

    live.wait_for(kill)
    killed_ms = now_ms()

    def arrived() -> bool:
        upstream, in_lake = live.orders(killed_ms)
        assert len(upstream) > 20, "most orders stay as they are for a while"
        return upstream <= in_lake

    live.wait_for(arrived)
    assert live.lake.sql("SELECT count(*) - count(DISTINCT id) FROM shop.orders").rows == [(0,)]
