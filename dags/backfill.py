"""Fills new tables, and tries stopped ones again.

Trigger it after `CREATE TABLE … FROM SOURCE`, or when the cause of a stop is gone. One task a source reads what its tables lack,
with a reader of their own until they have caught up with the others, which go on meanwhile. `lakehold status` shows how far they
are.

Each table has a task of its own behind that: green when it is with the others and can be read, red when it is not, with what to
do last in its log.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, task

from lakehold.orchestration import ingesting
from lakehold.orchestration.assets import TABLES, announce
from lakehold.orchestration.failures import Failures, gathered, outcome, pairs, watch
from lakehold.orchestration.labels import label
from lakehold.orchestration.lakes import open_lake
from lakehold.orchestration.pools import WRITERS
from lakehold.orchestration.standard import STANDARD

NAMES = Param(
    [],
    type="array",
    items={"type": "string", "pattern": r"^.+\..+$"},
    title="Tables",
    description="Full names, such as `shop.orders`, one a line. Empty: all that are behind.",
)


@dag("lakehold_backfill", schedule=None, params={"tables": NAMES}, doc_md=__doc__, **STANDARD)
def backfill_dag() -> None:
    @task
    def behind(params: Any = None) -> list[list[str]]:
        with open_lake() as lake:
            return ingesting.behind(lake, params["tables"])

    @task(outlets=[TABLES], pool=WRITERS, map_index_template="{{ tables }}")
    def backfill(tables: list[str], outlet_events: Any = None) -> Failures:
        label("tables", tables)
        with open_lake() as lake:
            done = ingesting.backfill(lake, tables)
            announce(outlet_events, TABLES, lake.settings.catalog_name, done.changed)
        return pairs(done.errors)

    filled = backfill.expand(tables=behind())
    tables = outcome.override(task_id="table").expand(found=gathered.override(task_id="outcomes")(filled))
    [filled, tables] >> watch()


backfill_dag()
