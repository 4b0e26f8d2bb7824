"""Fills a new table, or one that was stopped.

Trigger it with the table's name after `CREATE TABLE … FROM SOURCE`. It reads what the table's topic holds, with a reader of its
own until the table has caught up with the others of its source; those go on meanwhile. It ends when the table can be read.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, task

from lakehold.orchestration import ingesting
from lakehold.orchestration.assets import TABLES, announce
from lakehold.orchestration.lakes import open_lake
from lakehold.orchestration.pools import WRITERS
from lakehold.orchestration.standard import STANDARD

TABLE = Param(
    type="string",
    pattern=r"^.+\..+$",
    title="Table",
    description="Full name of the table, such as `shop.orders`.",
)


@dag("lakehold_backfill", schedule=None, params={"table": TABLE}, doc_md=__doc__, **STANDARD)
def backfill_dag() -> None:
    @task(outlets=[TABLES], pool=WRITERS)
    def backfill(params: Any = None, outlet_events: Any = None) -> None:
        with open_lake() as lake:
            changed = ingesting.backfill(lake, params["table"])
            announce(outlet_events, TABLES, lake.settings.catalog_name, changed)

    backfill()


backfill_dag()
