"""Checks tables that have changed.

It starts when tables change (assets `lakehold-tables`) and runs each table's suite on its current data, each snapshot once. The
suite is the file `expectations/<table>.json`, else one generated from the table's schema and key. Verdicts are kept in
`mz_catalog.mz_hold_checks`, each with a page.

A table that fails its suite is a red task of its own: its log names the expectations, and some of the rows.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, task

from lakehold.orchestration import checking
from lakehold.orchestration.assets import TABLES, announced
from lakehold.orchestration.failures import Failures, failed, pairs
from lakehold.orchestration.lakes import open_lake
from lakehold.orchestration.standard import STANDARD

CHECKED = Param(
    [],
    type="array",
    items={"type": "string"},
    title="Tables",
    description="Full names, one a line. Empty: those that have changed; all, when a person triggers it.",
)


@dag("lakehold_quality", schedule=[TABLES], params={"tables": CHECKED}, doc_md=__doc__, **STANDARD)
def quality_dag() -> None:
    @task
    def check(params: Any = None, triggering_asset_events: Any = None) -> Failures:
        with open_lake() as lake:
            return pairs(checking.check_tables(lake, params["tables"] or announced(triggering_asset_events)))

    failed.override(task_id="table").expand(failure=check())


quality_dag()
