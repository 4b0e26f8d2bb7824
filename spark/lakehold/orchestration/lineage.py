"""Lineage: what tasks read and wrote, for Airflow's provider of OpenLineage. Without the provider nothing is collected.

A task reports assets, whose URIs the provider translates by `dataset_of`:

    lakehold://lake/shop/orders          the table `shop.orders` of the catalog `lake`
    lakehold-topic://broker:9092/orders  the topic `orders` of Kafka
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from airflow.sdk import get_current_context
from airflow.sdk.lineage import NoOpCollector, get_hook_lineage_collector

from lakehold.orchestration.assets import Changed, asset_of
from lakehold.orchestration.provider import TOPIC

if TYPE_CHECKING:
    from airflow.sdk import Asset
    from openlineage.client.event_v2 import Dataset

    from lakehold.lake import Lake
    from lakehold.model.lake_definitions import Definitions


def report_lineage(lake: Lake, changes: Sequence[Changed]) -> None:
    """Report changed tables as outputs of the running task, and as its inputs what these are made from."""
    collector = get_hook_lineage_collector()
    if isinstance(collector, NoOpCollector) or not changes:
        return
    defined, catalog_name = lake.definitions.definitions(), lake.settings.catalog_name
    # Airflow names hooks as the type: it keeps the context only to tell who reported.
    context: Any = get_current_context()
    for uri in sorted({uri for change in changes for uri in made_from(change.table, defined, catalog_name)}):
        collector.add_input_asset(context, uri=uri)
    for change in changes:
        uri = asset_of(catalog_name, change.table).uri
        collector.add_output_asset(context, uri=uri, asset_extra={**change.extra})


def dataset_of(asset: Asset, _context: Any) -> Dataset:
    """Translate an asset, as OpenLineage names tables and topics; a table has its snapshot as version."""
    from openlineage.client.event_v2 import Dataset  # noqa: PLC0415 - only the provider calls it
    from openlineage.client.facet_v2 import DatasetFacet, dataset_version_dataset  # noqa: PLC0415

    parts = urlsplit(asset.uri)
    name = unquote(parts.path.removeprefix("/"))
    if parts.scheme == TOPIC:
        return Dataset(namespace=f"kafka://{parts.netloc}", name=name)
    snapshot_id = asset.extra.get("snapshot_id")
    facets: dict[str, DatasetFacet] = {}
    if snapshot_id is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(snapshot_id))
    return Dataset(namespace=f"{parts.scheme}://{parts.netloc}", name=name.replace("/", "."), facets=facets)


def made_from(table: str, defined: Definitions, catalog_name: str) -> Iterable[str]:
    """Return the URIs of what a table is made from: its topic, or the tables that its subscription or view reads."""
    from lakehold.ingest.read.source_directory import directory_of  # noqa: PLC0415 - Airflow imports this to read the DAGs
    from lakehold.kafka.connection_options import kafka_options  # noqa: PLC0415
    from lakehold.secrets import resolve  # noqa: PLC0415

    if table not in defined.tables:
        read = (entry.definition for entry in defined.all_derived.values() if entry.definition.into == table)
        return [asset_of(catalog_name, name).uri for definition in read for name in definition.tables]
    fed = defined.tables[table].definition
    source = defined.source(fed.source)
    if source.path is not None:
        return [f"file://{directory_of(source.path)}"]
    options = defined.connection(source.connection).options if source.connection is not None else {}
    # Not the secrets of the connection: one that is missing would fail a task whose work is done.
    address = {name: value for name, value in options.items() if name.lower() == "broker"}
    broker = kafka_options(resolve(address)).brokers.partition(",")[0]
    return [f"{TOPIC}://{broker}/{quote(fed.topic, safe='')}"]
