"""The overhead of a small ingest under Airflow, beyond its batch and beyond tasks that do nothing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.airflow_live import LiveAirflow, live_airflow
from tests.benchmarks.figures import Figure
from tests.stack_fixtures import open_directory

_DAG = "lakehold_ingest"
_BATCH_MS = re.compile(r"messages in (\d+) ms")
_EMPTY_TASK = "stopped_tables"
"""A task that does nothing, since no table is stopped."""
_ALLOWED_S = 1.5
_WARM_UP = 2


@dataclass(frozen=True)
class _Run:
    """Seconds of a run with a batch: of its batch, of its tasks, of an empty task, and from queued to success."""

    batch: float
    tasks: tuple[float, ...]
    empty: float
    whole: float

    @property
    def beyond(self) -> float:
        """Return the seconds that the tasks took beyond the batch and as many empty tasks."""
        return sum(self.tasks) - self.batch - len(self.tasks) * self.empty


def ingest_runs(directory: Path, runs: int) -> list[Figure]:
    """Measure the ingest of a live shop, each minute over the orders of its customers since the last one."""
    directory.mkdir(parents=True)
    with open_directory() as stack_directory, live_airflow(directory, stack_directory) as live:
        live.wait_for(lambda: len(_succeeded(live)) >= runs + _WARM_UP)
        found = [run for run in map(lambda run: _measured(live, run), _succeeded(live)) if run is not None][_WARM_UP:]
    empty = tuple(run.empty for run in found)
    beyond = tuple(run.beyond for run in found)
    return [
        Figure(
            "tasks of an ingest, beyond the batch and as many empty ones",
            "s",
            beyond,
            "allowed",
            (_ALLOWED_S,) * len(found),
            1.0,
        ),
        Figure("these tasks", "s", tuple(sum(run.tasks) for run in found), "an empty task", empty, None),
        Figure("its batch", "s", tuple(run.batch for run in found), "an empty task", empty, None),
        Figure("its DAG run, queued to success", "s", tuple(run.whole for run in found), "an empty task", empty, None),
    ]


def _succeeded(live: LiveAirflow) -> list[dict[str, Any]]:
    return [run for run in live.runs(_DAG) if run["state"] == "success"]


def _measured(live: LiveAirflow, run: dict[str, Any]) -> _Run | None:
    path = f"/dags/{_DAG}/dagRuns/{run['dag_run_id']}/taskInstances"
    tasks = {task["task_id"]: task for task in live.get(path)["task_instances"] if task["duration"] is not None}
    log = json.dumps(live.get(f"{path}/ingest/logs/{tasks['ingest']['try_number']}", map_index=0))
    batches = [int(ms) for ms in _BATCH_MS.findall(log)]
    if not batches:
        return None
    return _Run(
        batch=sum(batches) / 1000,
        tasks=tuple(task["duration"] for task in tasks.values()),
        empty=tasks[_EMPTY_TASK]["duration"],
        whole=(_at(run["end_date"]) - _at(run["queued_at"])).total_seconds(),
    )


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)
