"""`make airflow` as a process, with the requests that tests and benchmarks make to a live scheduler."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg

from lakehold.demo.airflow_servers import Scheduler
from lakehold.lake import Lake, connect
from lakehold.servers import ServerCommand, processes
from lakehold.servers.server_directory import log_file, pid_file
from tests.airflow_process import ROOT
from tests.make_targets import commands
from tests.spark_connect import free_port
from tests.waiting import wait_for

Row = tuple[Any, ...]

STARTS_WITHIN_S = 600
ARRIVES_WITHIN_S = 600
STOPS_WITHIN_S = 120
ANSWERS_WITHIN_S = 120


@dataclass
class LiveAirflow:
    """A running `make airflow`.

    Attributes:
        directory: Where the demo keeps its servers.
        orphans: Processes of a scheduler that was killed: they wait for tasks that it does not send any more.
    """

    process: subprocess.Popen[str]
    url: str
    postgres: str
    lake: Lake
    directory: Path
    orphans: list[psutil.Process] = field(default_factory=list)

    def get(self, path: str, **query: Any) -> Any:
        return self._request("GET", path, params=query)

    def set_slots(self, pool: str, slots: int) -> None:
        # Airflow 3.3 requires more fields than `update_mask` names, which says what is changed.
        whole = {"name": pool, "slots": slots, "include_deferred": False}
        self._request("PATCH", f"/pools/{pool}", params={"update_mask": "slots"}, json=whole)

    def _request(self, method: str, path: str, **arguments: Any) -> Any:
        with httpx.Client(base_url=self.url, timeout=ANSWERS_WITHIN_S) as client:
            token = client.get("/auth/token").raise_for_status().json()["access_token"]
            headers = {"Authorization": f"Bearer {token}"}
            return client.request(method, f"/api/v2{path}", headers=headers, **arguments).raise_for_status().json()

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"/dags/{dag_id}/dagRuns", order_by="start_date")["dag_runs"]
        return found

    def wait_for(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            assert self.process.poll() is None, "the demo runs until Ctrl-C"
            return condition()

        wait_for(holds, within_s=ARRIVES_WITHIN_S)

    def holder(self) -> int | None:
        """Return the id of the process that runs a batch now, or None."""
        leases = {state.lease for state in self.lake.batches.readers("shop").values() if state.lease is not None}
        return next((int(lease.holder.split(":")[1]) for lease in leases), None)

    def kill_scheduler(self) -> None:
        """Kill the scheduler, and not the task that it runs, and start another one, as what supervises it would."""
        servers = self.directory / "airflow"
        record = pid_file(servers, Scheduler.name)
        scheduler = processes.recorded(record)
        assert scheduler is not None
        self.orphans += scheduler.children(recursive=True)
        log = log_file(servers, Scheduler.name)
        # Its successor retries the task that waits for an answer of it after less time than the demo's scheduler.
        variables = scheduler.environ() | {"AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20"}
        command = ServerCommand(scheduler.cmdline(), Path(scheduler.cwd()), log, variables)
        scheduler.kill()
        wait_for(lambda: processes.has_ended(scheduler), "the scheduler ends")
        processes.start(command, record)

    def orders(self, before_ms: int) -> tuple[set[Row], set[Row]]:
        """Return the orders unchanged since a time, as PostgreSQL has them and as the lake has them now."""
        when = f"changed_at < to_timestamp({before_ms} / 1000.0)"
        with psycopg.connect(self.postgres) as connection:
            statement = f"SELECT id, status::text, total::text FROM orders WHERE {when}"
            upstream = {*connection.execute(statement.encode()).fetchall()}
        return upstream, {*self.lake.sql("SELECT id, status, CAST(total AS STRING) FROM shop.orders").rows}


@contextmanager
def live_airflow(
    directory: Path, stack_directory: str, variables: Mapping[str, str] | None = None
) -> Iterator[LiveAirflow]:
    """Run the demo in `directory`, on its own stack and with further environment variables, until the block ends."""
    port = free_port()
    command = commands("airflow", PORT=port)[-1]
    printed = directory / "printed"
    with printed.open("w") as output:
        process = subprocess.Popen(
            [*command, "--directory", str(directory / "demo")],
            cwd=ROOT,
            env={**os.environ, **(variables or {}), "LAKEHOLD_STACK_DIR": stack_directory},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        wait_for(lambda: "Airflow is at" in printed.read_text() or process.poll() is not None, within_s=STARTS_WITHIN_S)
        assert process.poll() is None, printed.read_text()[-3_000:]
        (postgres,) = re.findall(r"PostgreSQL has a shop: (\S+)", printed.read_text())
        with connect(str(directory / "demo" / "lake")) as lake:
            live = LiveAirflow(process, f"http://127.0.0.1:{port}", postgres, lake, directory / "demo")
            try:
                yield live
            finally:
                for orphan in live.orphans:
                    with suppress(psutil.NoSuchProcess):
                        orphan.kill()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        code = process.wait(STOPS_WITHIN_S)
    assert code == 0, printed.read_text()[-3_000:]
