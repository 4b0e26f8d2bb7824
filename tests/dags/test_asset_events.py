"""Events of assets, as Airflow gives them to the tasks of the runs that they start."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Asset
from airflow.sdk.api.datamodels._generated import AssetAliasReferenceAssetEventDagRun, AssetReferenceAssetEventDagRun
from airflow.sdk.execution_time.comms import AssetEventDagRunReferenceResult
from airflow.sdk.execution_time.context import TriggeringAssetEventsAccessor

from lakehold.orchestration.assets import TABLES, Changed, announced, asset_of


def event(asset: Asset, extra: dict[str, Any]) -> AssetEventDagRunReferenceResult:
    return AssetEventDagRunReferenceResult(
        asset=AssetReferenceAssetEventDagRun(name=asset.name, uri=asset.uri, extra={}),
        extra=extra,
        source_task_id=None,
        source_dag_id=None,
        source_run_id=None,
        source_map_index=None,
        source_aliases=[AssetAliasReferenceAssetEventDagRun(name=TABLES.name)],
        timestamp=datetime.now(UTC),
    )


def test_events_that_a_person_sends_name_their_table_and_those_of_other_assets_are_skipped() -> None:
    by_hand = {"from_rest_api": True}
    events = TriggeringAssetEventsAccessor.build(
        [
            event(asset_of("lake", "shop.orders"), Changed("shop.orders", 1, 2, 3, None).extra),
            event(asset_of("lake", "shop.rates"), by_hand),
            event(asset_of("lake", "shop.eu.rates"), by_hand),
            event(asset_of("other", "shop.bills"), by_hand),
            event(Asset("s3://bucket/prices.csv"), by_hand),
        ]
    )
    assert announced(events, "lake") == ["shop.eu.rates", "shop.orders", "shop.rates"]
    assert announced(TriggeringAssetEventsAccessor.build([]), "lake") == []
