"""Checks tables that have changed.

It starts when tables change (assets `lakehold-tables`) and runs each table's suite on its current data. A changed table is
skipped while its first snapshot loads, or if it was dropped. Every 10 minutes it checks all tables, and so what a failed run
left. Each snapshot is checked once, and again when a person names its table. The suite is the file `expectations/<table>.json`,
else one generated from the table's schema and key. Verdicts are kept in `mz_catalog.mz_hold_checks`, each with a page.

When a person asks for it, it also compares captured tables with their databases, and materialized views with
their queries, row by row.

A table that fails its suite, or differs, is a red task of its own: its log names the expectations or keys, and some of the rows.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, task

from lakehold.orchestration import checking, verifying
from lakehold.orchestration.assets import AFTER_CHANGES, announced
from lakehold.orchestration.failures import Failures, failed, pairs_or_retry
from lakehold.orchestration.lakes import open_lake
from lakehold.orchestration.standard import STANDARD

CHECKED = Param(
    [],
    type="array",
    items={"type": "string"},
    title="Tables",
    description="Full names, one a line. Empty: those that have changed; all, when a person or the clock starts it.",
)

VERIFY = Param(
    False,
    type="boolean",
    title="Compare with databases and queries",
    description="Also compare those of the tables that are captured with their databases, and views with their queries, row by "
    "row. Nothing is stopped.",
)


@dag(
    "lakehold_quality", schedule=AFTER_CHANGES, params={"tables": CHECKED, "verify": VERIFY}, doc_md=__doc__, **STANDARD
)
def quality_dag() -> None:
    @task
    def check(params: Any = None, triggering_asset_events: Any = None, dag_run: Any = None, ti: Any = None) -> Failures:
        with open_lake() as lake:
            changed = announced(triggering_asset_events, lake.settings.catalog_name)
            failures = checking.check_tables(lake, params["tables"], changed, checking.since_ms_of(dag_run))
            if params["verify"]:
                failures |= verifying.verify_tables(lake, params["tables"])
            return pairs_or_retry(failures, ti)

    failed.override(task_id="table").expand(failure=check())


quality_dag()
