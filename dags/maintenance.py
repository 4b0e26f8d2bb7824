"""Expires history that nothing needs, and compacts small files.

For the tables that sources feed, the tables of other writers that set RETAIN HISTORY, and `mz_catalog`, it expires snapshots that
no retention, hold or reader needs, compacts small files, and deletes files that no table refers to.

After it was killed, run it again. It may run beside batches.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, task

from lakehold.orchestration import maintaining
from lakehold.orchestration.failures import Failures, failed, pairs_or_retry
from lakehold.orchestration.lakes import open_lake
from lakehold.orchestration.schedules import SCHEDULES
from lakehold.orchestration.standard import STANDARD

PARAMS = {
    "tables": Param(
        [], type="array", items={"type": "string"}, title="Tables", description="Full names, one a line. Empty: all."
    ),
    "dry_run": Param(False, type="boolean", title="Dry run", description="Change nothing; log what would be done."),
}


@dag("lakehold_maintenance", schedule=SCHEDULES.maintenance_schedule, params=PARAMS, doc_md=__doc__, **STANDARD)
def maintenance_dag() -> None:
    @task
    def maintain(params: Any = None, ti: Any = None) -> Failures:
        with open_lake() as lake:
            return pairs_or_retry(maintaining.maintain(lake, params["tables"], dry_run=params["dry_run"]), ti)

    failed.override(task_id="table").expand(failure=maintain())


maintenance_dag()
