"""A DAG that starts after each change of shop.orders and writes the table to a Parquet file, without Spark.

Copy it into a folder of DAGs beside those of lakehold. Replace the catalog (lake), the table and the directory.
"""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import Asset, dag, task

from lakehold.orchestration.lakes import open_lake

ORDERS = Asset(name="lake.shop.orders", uri="lakehold://lake/shop/orders", group="lakehold")
DIRECTORY = Path(os.environ.get("ORDERS_EXPORT", "/var/lib/orders"))


@dag("orders_export", schedule=[ORDERS], max_active_runs=1, doc_md=__doc__)
def orders_export() -> None:
    @task(retries=3)
    def export() -> str:
        from pyarrow import parquet  # noqa: PLC0415 - in the task only: each parse of the file would import it

        with open_lake() as lake:
            table = lake.catalog.load_table("shop.orders")
            snapshot = table.current_snapshot()
            if snapshot is None:
                return "no rows yet"
            # A try that comes again writes the same file: it has the name of the state.
            file = DIRECTORY / f"orders-{snapshot.snapshot_id}.parquet"
            parquet.write_table(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow(), file)
        return str(file)

    export()


orders_export()
