"""Errors that a task of a DAG raises, so that Airflow tries it again, and those that it hands to red tasks."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from airflow.configuration import conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from lakehold.errors import CommitConflict, DefinitionError, SparkEnded, TransactionIncomplete
from lakehold.lake import Lake
from lakehold.maintenance.maintenance_plan import TablePlan
from lakehold.maintenance.survey import MaintenanceScope, Survey
from lakehold.orchestration.failures import Found, gathered, pairs_or_retry
from lakehold.orchestration.maintaining import maintain
from lakehold.orchestration.map_limits import MOST_ITEMS, joined
from tests.airflow_process import ROOT, environment


@dataclass(frozen=True)
class Try:
    """A try of a task that has two retries."""

    try_number: int
    max_tries: int = 2


FIRST, LAST = Try(1), Try(3)

MISSING = DefinitionError("there is no table", code="table-missing")
CONFLICT = CommitConflict("another writer was first")
ENDED = SparkEnded("the Spark of this process has ended")


def test_an_error_that_may_pass_is_raised_until_the_last_try_and_others_become_red_tasks() -> None:
    waits = TransactionIncomplete("the transaction is incomplete")
    lasting: Found = {"s.a": MISSING, "s.b": waits, "s.c": "2 rows differ", "s.d": ""}
    assert pairs_or_retry(lasting, FIRST) == [
        ["s.a", "there is no table\ncode: table-missing"],
        ["s.b", "the transaction is incomplete\ncode: transaction-incomplete"],
        ["s.c", "2 rows differ"],
        ["s.d", ""],
    ]
    with pytest.raises(AirflowException, match="code: commit-conflict") as raised:
        pairs_or_retry({**lasting, "s.e": CONFLICT}, FIRST)
    assert not isinstance(raised.value, AirflowFailException), "Airflow would not try again"
    assert len(pairs_or_retry({**lasting, "s.e": CONFLICT}, LAST)) == 5


def test_thousands_of_sources_or_failures_are_no_more_tasks_than_airflow_accepts() -> None:
    sources = [f"source{number}" for number in range(1_100)]
    groups = joined([[name] for name in sources])
    assert [name for group in groups for name in group] == sources
    failures = pairs_or_retry({name: MISSING for name in sources}, FIRST)
    outcomes = gathered.function([[[name, ""] for name in sources], None, [["s.t", "is not in sync"]]])
    assert (len(groups), len(failures), len(outcomes)) == (367, MOST_ITEMS, MOST_ITEMS)
    assert conf.getint("core", "max_map_length") > MOST_ITEMS
    name, error = failures[-1]
    assert (name, error.count("code: table-missing")) == ("and 601 more", 601)
    assert (outcomes[0], outcomes[-1]) == (["s.t", "is not in sync"], ["and 602 more", ""])
    assert joined([]) == []


@pytest.mark.parametrize("of", [FIRST, LAST])
def test_an_error_that_ends_the_process_fails_each_try_as_the_tables_after_it_were_not_reached(of: Try) -> None:
    with pytest.raises(AirflowException, match="code: spark-ended"):
        pairs_or_retry({"s.a": CONFLICT, "s.b": ENDED}, of)


WORK_WITHOUT_SPARK = """
import json, sys
import psutil
from lakehold.errors import LakeholdError
from lakehold.lake import connect
from lakehold.orchestration.checking import check_tables
from lakehold.orchestration.maintaining import maintain
from lakehold.orchestration.verifying import verify_tables

def code_of(work):
    try:
        return {name: error.code for name, error in work().items()}
    except LakeholdError as error:
        return error.code

with connect() as lake:
    tables, views = [f"s.t{n}" for n in range(3)], [f"s.v{n}" for n in range(3)]
    for name in tables:
        lake.sql(
            f"CREATE TABLE {name} (id INT) USING iceberg TBLPROPERTIES ('lakehold.retain-history-ms' = '0');"
            f"INSERT INTO {name} VALUES (1); INSERT INTO {name} VALUES (2)"
        )
    for name in views:
        lake.sql(f"CREATE MATERIALIZED VIEW {name} AS SELECT id FROM s.t0")
        lake.publish(name)
    (java,) = [child for child in psutil.Process().children(recursive=True) if child.name() == "java"]
    java.kill()
    java.wait()
    found = [
        code_of(lambda: maintain(lake, tables, dry_run=False)),
        code_of(lambda: check_tables(lake, tables, [], 0)),
        code_of(lambda: verify_tables(lake, views)),
    ]
    print(json.dumps(found), file=sys.stderr, flush=True)
"""


@pytest.mark.spark
def test_maintenance_that_is_killed_has_logged_the_tables_before(
    lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("s.first", "s.second"):
        lake.sql(f"CREATE TABLE {name} (id INT) USING iceberg TBLPROPERTIES ('lakehold.retain-history-ms' = '0')")
    plan = Survey.plan

    def killed(survey: Survey, scope: MaintenanceScope) -> TablePlan:
        if scope.full_name == "s.second":
            raise KeyboardInterrupt
        return plan(survey, scope)

    monkeypatch.setattr(Survey, "plan", killed)
    with caplog.at_level(logging.INFO, "lakehold"), pytest.raises(KeyboardInterrupt):
        maintain(lake, ["s.first", "s.second"], dry_run=False)
    assert [line for line in caplog.messages if line.startswith("s.first is readable since")]


@pytest.mark.spark
def test_work_on_many_tables_ends_at_the_first_when_spark_was_killed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORK_WITHOUT_SPARK],
        cwd=ROOT,
        env=environment(tmp_path, warehouse=str(tmp_path / "lake"), foreign_lag_ms="0", expectations=""),
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line for line in done.stderr.splitlines() if line.startswith("[{")]
    assert [json.loads(line) for line in found] == [[{"s.t0": "spark-ended"}, "spark-ended", "spark-ended"]], (
        done.stderr
    )
