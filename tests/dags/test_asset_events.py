"""Events of assets, as Airflow gives them to the tasks of the runs that they start."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Asset
from airflow.sdk.api.datamodels._generated import (
    AssetAliasReferenceAssetEventDagRun,
    AssetReferenceAssetEventDagRun,
    AssetResponse,
)
from airflow.sdk.execution_time.comms import AssetEventDagRunReferenceResult, AssetEventResult
from airflow.sdk.execution_time.context import TriggeringAssetEventsAccessor

from lakehold.orchestration.assets import TABLES, Announced, Changed, announced, asset_of


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


class InletEvents(list[AssetEventResult]):
    """Events of an alias, newest first."""

    def ascending(self, *, ascending: bool) -> InletEvents:
        assert not ascending
        return self

    def limit(self, limit: int) -> Sequence[AssetEventResult]:
        return self[:limit]


def sent(asset: Asset, extra: dict[str, Any], at_s: int) -> AssetEventResult:
    return AssetEventResult(
        id=at_s,
        timestamp=datetime.fromtimestamp(at_s, UTC),
        extra=extra,
        asset=AssetResponse(name=asset.name, uri=asset.uri, group=asset.group),
        created_dagruns=[],
    )


def test_the_newest_event_of_a_table_says_what_was_announced() -> None:
    orders = asset_of("lake", "shop.orders")
    events = InletEvents(
        [
            sent(asset_of("lake", "shop.rates"), {"from_rest_api": True}, 400),
            sent(orders, Changed("shop.orders", 2**62, 7, 6, 1).extra, 300),
            sent(orders, Changed("shop.orders", 1, 5, 4, None).extra, 200),
            sent(asset_of("other", "shop.bills"), Changed("shop.bills", 3, 5, 4, None).extra, 100),
        ]
    )
    found = Announced.read({TABLES: events}, TABLES, "lake", 1)
    assert found == Announced({"shop.orders": (str(2**62), 7)}, 0)
    assert Announced(**found.of(["shop.orders", "shop.rates"])) == found
    assert found.of(["shop.rates"]) == {"newest": {}, "since_ms": 0}

    many = InletEvents([*events, *(sent(orders, {}, at_s) for at_s in range(99, 0, -1))])
    assert Announced.read({TABLES: many}, TABLES, "lake", 1).since_ms == 50_000
