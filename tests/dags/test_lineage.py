"""The datasets of OpenLineage: tables with their snapshots, topics, directories, and what a table is made from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.airflow_process import ROOT, environment

PROGRAM = """
import json
from airflow.providers.common.compat.openlineage.utils.utils import translate_airflow_asset
from airflow.sdk import Asset
from lakehold.definitions import *
from lakehold.model.lake_definitions import Definitions, Entry
from lakehold.orchestration.assets import asset_of
from lakehold.orchestration.lineage import made_from

json_format, defined = Format(FormatType.JSON), Definitions()
for definition in (
    Connection("kafka", ConnectionType.KAFKA, {"broker": "one:9092,two:9092", "sasl password": Secret("NOT_SET")}),
    Source("shop", json_format, connection="kafka", topics=("a/b",)),
    Source("files", json_format, path="/data/recorded"),
    Table("shop", "orders", source="shop", topic="a/b", envelope=Envelope.UPSERT),
    Table("shop", "rates", source="files", topic="rates", envelope=Envelope.UPSERT),
    Subscription("changes", "bi.changes", "SUBSCRIBE shop.orders", ("shop.orders", "shop.rates")),
):
    defined = defined.with_entry(Entry(type(definition).__name__, definition, "", 0))


def shown(asset):
    found = translate_airflow_asset(asset, None)
    return [found.namespace, found.name, *(facet.datasetVersion for facet in found.facets.values())]


read = {
    table: [shown(Asset(uri=uri)) for uri in made_from(table, defined, "lake")]
    for table in ("shop.orders", "shop.rates", "bi.changes", "bi.others")
}
written = Asset(uri=asset_of("lake", "shop.orders").uri, extra={"snapshot_id": "7"})
print(json.dumps({**read, "written": shown(written)}))
"""


def test_a_table_is_made_from_its_topic_and_an_output_from_the_tables_it_reads(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(found.stdout.splitlines()[-1]) == {
        "shop.orders": [["kafka://one:9092", "a/b"]],
        "shop.rates": [["file", "/data/recorded"]],
        "bi.changes": [["lakehold://lake", "shop.orders"], ["lakehold://lake", "shop.rates"]],
        "bi.others": [],
        "written": ["lakehold://lake", "shop.orders", "7"],
    }
