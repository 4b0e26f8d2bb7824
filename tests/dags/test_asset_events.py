"""Events of assets, as Airflow gives them to the tasks of the runs that they start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Asset
from airflow.sdk.api.datamodels._generated import (
    AssetAliasReferenceAssetEventDagRun,
    AssetReferenceAssetEventDagRun,
    AssetResponse,
)
from airflow.sdk.execution_time.comms import (
    AssetEventDagRunReferenceResult,
    AssetEventResult,
    GetAssetEventByAssetAlias,
)
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
    """Events of an alias, newest first, and the number of those that each request read."""

    def __init__(self, events: Iterable[AssetEventResult]) -> None:
        super().__init__(events)
        self.read: list[int] = []

    def ascending(self, *, ascending: bool) -> Request:
        assert not ascending
        return Request(self)


@dataclass(frozen=True)
class Request:
    """A request for events, which Airflow limits to those until a time (inclusive)."""

    events: InletEvents
    most: int = 0
    until: str | None = None

    def limit(self, limit: int) -> Request:
        return replace(self, most=limit)

    def before(self, before: str) -> Request:
        return replace(self, until=before)

    def __iter__(self) -> Iterator[AssetEventResult]:
        arguments: dict[str, Any] = {"before": self.until, "ascending": False, "limit": self.most}
        until = GetAssetEventByAssetAlias(alias_name=TABLES.name, **arguments).before
        found = [event for event in self.events if until is None or event.timestamp <= until][: self.most]
        self.events.read.append(len(found))
        return iter(found)


def sent(asset: Asset, extra: dict[str, Any], at_s: int, id_: int | None = None) -> AssetEventResult:
    return AssetEventResult(
        id=at_s if id_ is None else id_,
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
    found = Announced.read({TABLES: events}, TABLES, "lake", ["shop.orders"])
    assert found == Announced({"shop.orders": (str(2**62), 7)}, 0)
    assert Announced(**found.of(["shop.orders", "shop.rates"])) == found
    assert found.of(["shop.rates"]) == {"newest": {}, "since_ms": 0}


def test_events_are_read_in_portions_until_each_table_has_one() -> None:
    def events(*names: str, count: int) -> InletEvents:
        """Return as many events of each table, all of them at the same second of a run."""
        runs = range(count, 0, -1)
        found = [(name, at_s) for at_s in runs for name in names]
        return InletEvents(
            sent(asset_of("lake", name), Changed(name, at_s, at_s, at_s, None).extra, at_s, id_)
            for id_, (name, at_s) in enumerate(found)
        )

    names = [f"shop.t{number}" for number in range(150)]
    busy = events(*names, count=20)
    found = Announced.read({TABLES: busy}, TABLES, "lake", names)
    assert found == Announced(dict.fromkeys(names, ("20", 20)), 19_000)
    assert busy.read == [200]

    busy.read.clear()
    found = Announced.read({TABLES: busy}, TABLES, "lake", [*names, "shop.quiet"])
    assert {*found.newest} == {*names}
    assert max(busy.read) == 200
    several_runs = 4
    assert found.since_ms <= (20 - several_runs) * 1_000
    assert len(busy.read) < 10

    quiet = events("shop.t0", count=3)
    assert Announced.read({TABLES: quiet}, TABLES, "lake", names) == Announced({"shop.t0": ("3", 3)})
    at_once = events(*(f"shop.new{number}" for number in range(300)), count=1)
    assert Announced.read({TABLES: at_once}, TABLES, "lake", names).since_ms == 1_000
