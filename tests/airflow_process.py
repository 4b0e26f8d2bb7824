"""A migrated Airflow in its own process, which runs the project's DAGs one after the other and reports their results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DAGS = ROOT / "dags"
EXAMPLES = ROOT / "docs" / "examples"


def environment(home: Path, **settings: str) -> dict[str, str]:
    """Return the environment of an Airflow that keeps everything in `home`; `settings` are lakehold's, by name."""
    return {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
        **{f"LAKEHOLD_{name.upper()}": value for name, value in settings.items()},
    }


@dataclass(frozen=True)
class Run:
    """The result of a run of a DAG.

    Attributes:
        state: State of the run.
        tasks: State of each task by its id, with the index of a mapped task in brackets.
        labels: Label of each mapped task, by task id.
        events: Assets that the run announced, with their extra data.
        log: Everything that the run logged.
    """

    state: str
    tasks: Mapping[str, str]
    labels: Mapping[str, str]
    events: tuple[tuple[str, Mapping[str, Any]], ...]
    log: str


class AirflowProcess:
    """A process that runs DAGs; its requests and answers are lines of JSON."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def run(self, dag_id: str, **params: Any) -> Run:
        """Run a DAG to its end, as if a person had triggered it with `params`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        log_bytes = self._log.stat().st_size
        print(json.dumps([dag_id, params]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        log = self._log.read_bytes()[log_bytes:].decode()
        assert answer, log[-5_000:]
        answered = json.loads(answer)
        events = tuple((name, extra) for name, extra in answered["events"])
        return Run(answered["state"], answered["tasks"], answered["labels"], events, log)


@contextmanager
def airflow_process(home: Path, variables: Mapping[str, str], **settings: str) -> Iterator[AirflowProcess]:
    """Start an Airflow in `home`, with further variables in its environment, and end it with the block."""
    log = home / "runs.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.airflow_process"],
            cwd=ROOT,
            env={**environment(home, **settings), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
        with process:
            yield AirflowProcess(process, log)
            assert process.stdin is not None
            process.stdin.close()


def _serve() -> None:
    """Answer requests until there are no more. Everything that prints goes to the log."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    from airflow.dag_processing.bundles.manager import DagBundlesManager  # noqa: PLC0415 - in this process only
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db  # noqa: PLC0415
    from airflow.utils.db import initdb  # noqa: PLC0415

    initdb()
    DagBundlesManager().sync_bundles_to_db()  # type: ignore[no-untyped-call]
    bag = DagBag(DAGS)
    bag.collect_dags(EXAMPLES)
    sync_bag_to_db(bag, "dags-folder", None)
    # A run in this process leaves its values in the parameters of the DAG.
    defaults = {dag_id: dag.params.dump() for dag_id, dag in bag.dags.items()}
    for line in sys.stdin:
        dag_id, params = json.loads(line)
        print(json.dumps(_ran(bag.dags[dag_id], defaults[dag_id] | params)), file=answers, flush=True)


def _ran(dag: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    from airflow.models.asset import AssetEvent  # noqa: PLC0415 - in this process only
    from airflow.utils.session import create_session  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    run = dag.test(run_conf={**params} or None)
    with create_session() as session:
        found = session.scalars(select(AssetEvent).where(AssetEvent.source_run_id == run.run_id)).all()
        events = [[event.asset.name, event.extra] for event in found]
    tasks = {ti.task_id if ti.map_index < 0 else f"{ti.task_id}[{ti.map_index}]": ti for ti in run.get_task_instances()}
    return {
        "state": str(run.state),
        "tasks": {name: str(ti.state) for name, ti in tasks.items()},
        "labels": {name: ti.rendered_map_index for name, ti in tasks.items() if ti.map_index >= 0},
        "events": events,
    }


if __name__ == "__main__":
    _serve()
