"""The DAG files as Airflow's DAG processor reads them: without a database, without an engine, quickly, and of this shape."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.airflow_process import DAGS, ROOT, environment
from tests.doc_pages import page
from tests.runnable_pages import parts

HEAVY = (
    "pyspark",
    "pyiceberg",
    "pyarrow",
    "pandas",
    "great_expectations",
    "sqlglot",
    "confluent_kafka",
    "lakehold.lake",
)

PARSE = f"""
import json, sys, time

started = time.process_time()
from airflow.dag_processing.dagbag import DagBag

airflow_s = time.process_time() - started
started = time.process_time()
bag = DagBag({str(DAGS)!r})
parsed_s = time.process_time() - started
dags = {{
    name: {{
        "tasks": {{task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks}},
        "schedule": str(dag.schedule),
        "pools": {{task.task_id: task.pool for task in dag.tasks}},
        "retries": {{task.task_id: task.retries for task in dag.tasks}},
        "max_active_runs": dag.max_active_runs,
        "doc": dag.doc_md,
        "params": {{name: param.schema for name, param in dag.params.items()}},
        "described": [name for name, param in dag.params.items() if param.description],
    }}
    for name, dag in bag.dags.items()
}}
heavy = [name for name in {HEAVY!r} if name in sys.modules]
facts = {{"errors": bag.import_errors, "dags": dags, "heavy": heavy, "parsed_s": parsed_s, "airflow_s": airflow_s}}
print(json.dumps(facts), file=sys.stderr)
"""

STRUCTURE = {
    "lakehold_ingest": {
        "sources": ["ingest"],
        "ingest": ["stopped_tables", "watch"],
        "stopped_tables": ["table"],
        "table": ["watch"],
        "watch": [],
    },
    "lakehold_backfill": {
        "behind": ["backfill"],
        "backfill": ["outcomes", "watch"],
        "outcomes": ["table"],
        "table": ["watch"],
        "watch": [],
    },
    "lakehold_subscriptions": {
        "due": ["publish"],
        "publish": ["failed", "watch"],
        "failed": ["publish_alone"],
        "publish_alone": ["watch"],
        "watch": [],
    },
    "lakehold_quality": {"check": ["table"], "table": []},
    "lakehold_holds": {
        "move": ["check", "failures", "watch"],
        "check": ["failures", "watch"],
        "failures": ["hold"],
        "hold": ["watch"],
        "watch": [],
    },
    "lakehold_maintenance": {"maintain": ["table"], "table": []},
}


@cache
def parsed(home: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PARSE], env=environment(home), cwd=home, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow")


def test_dag_files_parse_without_a_database_and_without_an_engine(home: Path) -> None:
    found = parsed(home)
    assert found["errors"] == {}
    assert found["heavy"] == []
    assert not (home / "airflow.db").exists()


def test_dag_files_take_less_time_to_parse_than_airflow_to_start(home: Path) -> None:
    """Compare with the start of Airflow, after which the DAG processor parses the files again and again; the ratio is a tenth."""
    assert parsed(home)["parsed_s"] < parsed(home)["airflow_s"]


def test_dags_have_their_documented_tasks(home: Path) -> None:
    assert {name: dag["tasks"] for name, dag in parsed(home)["dags"].items()} == STRUCTURE


def test_dags_keep_the_rules_of_all_dags(home: Path) -> None:
    for name, dag in parsed(home)["dags"].items():
        assert dag["doc"], name
        assert dag["max_active_runs"] == 1, name
        assert dag["described"] == list(dag["params"]), name
        assert all("type" in schema for schema in dag["params"].values()), name
    pools = {
        (name, task): pool
        for name, dag in parsed(home)["dags"].items()
        for task, pool in dag["pools"].items()
        if pool != "default_pool"
    }
    assert pools == {
        ("lakehold_ingest", "ingest"): "lakehold_writers",
        ("lakehold_backfill", "backfill"): "lakehold_backfills",
    }


def test_a_run_of_the_clock_finds_what_a_failed_run_left(home: Path) -> None:
    for name in ("lakehold_subscriptions", "lakehold_quality"):
        schedule = parsed(home)["dags"][name]["schedule"]
        assert "AssetAlias(name='lakehold-tables'" in schedule
        assert "CronTriggerTimetable(expression='*/10 * * * *'" in schedule


def test_the_ingest_may_run_continuously(home: Path) -> None:
    program = (
        f"from airflow.dag_processing.dagbag import DagBag; bag = DagBag({str(DAGS)!r}); "
        "print(bag.import_errors, bag.dags['lakehold_ingest'].schedule)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(home, ingest_schedule="@continuous"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "{} @continuous"


def test_the_dags_of_the_documentation_parse(home: Path) -> None:
    shown = (part.text for name in ("airflow.md", "operate/lineage.md") for part in parts(page(name)))
    folder = home / "documented"
    folder.mkdir()
    for number, text in enumerate(text for text in shown if "@dag" in text):
        (folder / f"shown{number}.py").write_text(text)
    program = "from airflow.dag_processing.dagbag import DagBag; bag = DagBag('.'); print(sorted(bag.dag_ids), bag.import_errors)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(home), cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "['after_orders', 'read_orders'] {}"


def test_dag_files_are_written_for_the_installed_airflow() -> None:
    ruff = [str(Path(sys.executable).with_name("ruff")), "check", "--preview", "--select", "AIR", str(DAGS)]
    done = subprocess.run(ruff, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
