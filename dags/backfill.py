"""Fills new tables, and retries stopped ones.

Trigger it after `CREATE TABLE … FROM SOURCE`, or when the cause of a stop is removed. One task per source reads the missing
records of its tables with a separate reader, until they have caught up with the others, which continue meanwhile. `lakehold
status` shows their progress.

Afterwards each table has a task of its own: green when the table is in sync with the others and can be read, red when it is not,
with the hint last in its log.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, task

from lakehold.orchestration import ingesting
from lakehold.orchestration.assets import TABLES, announce
from lakehold.orchestration.failures import Failures, gathered, outcome, pairs_or_retry, watch
from lakehold.orchestration.labels import label
from lakehold.orchestration.lakes import open_lake
from lakehold.orchestration.lineage import report_lineage
from lakehold.orchestration.map_limits import joined
from lakehold.orchestration.pools import BACKFILLS
from lakehold.orchestration.standard import STANDARD

NAMES = Param(
    [],
    type="array",
    items={"type": "string", "pattern": r"^.+\..+$"},
    title="Tables",
    description="Full names, such as `shop.orders`, one a line. Empty: all that are new or stopped.",
)


@dag("lakehold_backfill", schedule=None, params={"tables": NAMES}, doc_md=__doc__, **STANDARD)
def backfill_dag() -> None:
    @task
    def behind(params: Any = None) -> list[list[str]]:
        with open_lake() as lake:
            return joined(ingesting.behind(lake, params["tables"]))

    # An ingest with much to do holds the source's lease most of the time: six pauses are ten minutes.
    @task(inlets=[TABLES], outlets=[TABLES], pool=BACKFILLS, retries=6, map_index_template="{{ tables }}")
    def backfill(tables: list[str], ti: Any = None, inlet_events: Any = None, outlet_events: Any = None) -> Failures:
        label("tables", tables)
        with open_lake() as lake:
            announced = ingesting.announced_tables(lake, inlet_events)
            done = ingesting.backfill(lake, tables, announced)
            announce(outlet_events, TABLES, lake.settings.catalog_name, done.changed)
            report_lineage(lake, done.changed)
        return pairs_or_retry(done.errors, ti)

    filled = backfill.expand(tables=behind())
    tables = outcome.override(task_id="table").expand(found=gathered.override(task_id="outcomes")(filled))
    [filled, tables] >> watch()


backfill_dag()
