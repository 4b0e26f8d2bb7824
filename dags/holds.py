"""Maintains holds.

It moves holds that exceed their MAX LAG, advances holds on request, and checks the data of holds with a CHECK at their times.
Verdicts are kept in `mz_catalog.mz_hold_checks`, each with a page.

A hold that could not be advanced, or whose data fails its checks, is a red task of its own.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, task

from lakehold.orchestration import checking, holding
from lakehold.orchestration.failures import Failures, failed, gathered, pairs_or_retry, watch
from lakehold.orchestration.lakes import open_lake
from lakehold.orchestration.schedules import SCHEDULES
from lakehold.orchestration.standard import STANDARD

PARAMS = {
    "advance": Param(
        [],
        type="array",
        items={"type": "string"},
        title="Holds to advance",
        description="Names, one a line. Empty: none.",
    ),
    "to": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="Advance to",
        description="The time from which they keep history. Empty: the oldest time that retention keeps readable anyway.",
    ),
}


@dag("lakehold_holds", schedule=SCHEDULES.holds_schedule, params=PARAMS, doc_md=__doc__, **STANDARD)
def holds_dag() -> None:
    @task
    def move(params: Any = None, ti: Any = None) -> Failures:
        with open_lake() as lake:
            holding.enforce_lag(lake)
            found = holding.advance(lake, params["advance"], holding.milliseconds(params["to"]))
            return pairs_or_retry(found, ti)

    @task
    def check(dag_run: Any = None, ti: Any = None) -> Failures:
        with open_lake() as lake:
            return pairs_or_retry(checking.check_holds(lake, checking.since_ms_of(dag_run)), ti)

    moved, checked = move(), check()
    moved >> checked
    holds = failed.override(task_id="hold").expand(failure=gathered.override(task_id="failures")([moved, checked]))
    [moved, checked, holds] >> watch()


holds_dag()
