"""Assets: each table is one, and its changes are events of the asset.

DAGs that depend on a table start with these events, and need no sensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Asset, AssetAlias, AssetAll, AssetOrTimeSchedule, CronTriggerTimetable

TABLES = AssetAlias("lakehold-tables", group="lakehold")
"""All tables that sources feed or subscriptions read: a DAG with this schedule runs after each change of any of them."""

# A run that failed has used up its events: a run by the clock finds what is left, also of tables that change no more.
AFTER_CHANGES = AssetOrTimeSchedule(
    timetable=CronTriggerTimetable("*/10 * * * *", timezone="UTC"), assets=AssetAll(TABLES)
)
"""The schedule of DAGs that run after changes of tables, and every 10 minutes for all tables."""

OUTPUTS = AssetAlias("lakehold-outputs", group="lakehold")
"""All tables that subscriptions publish into, and all materialized views."""


@dataclass(frozen=True)
class Changed:
    """A table that has changed.

    Args:
        table: Full name.
        snapshot_id: The newest snapshot.
        at_ms: When that snapshot was committed; of an output table or view, the timestamp below which (exclusive) all is
            published. Epoch milliseconds.
        mz_timestamp: The newest timestamp that it shows.
        previous_snapshot_id: The newest snapshot before those that are announced; None: there is none, or it is not known.
    """

    table: str
    snapshot_id: int
    at_ms: int
    mz_timestamp: int
    previous_snapshot_id: int | None

    @property
    def extra(self) -> dict[str, str | int | None]:
        """Return the data of the event. Ids are text: JSON has no integers of that size."""
        previous = self.previous_snapshot_id
        return {
            "table": self.table,
            "snapshot_id": str(self.snapshot_id),
            "previous_snapshot_id": str(previous) if previous is not None else None,
            "mz_timestamp": self.mz_timestamp,
            "at_ms": self.at_ms,
        }


def asset_of(catalog_name: str, table: str) -> Asset:
    """Return the asset of a table, for other DAGs that depend on that table only."""
    return Asset(
        name=f"{catalog_name}.{table}", uri=f"lakehold://{catalog_name}/{table.replace('.', '/')}", group="lakehold"
    )


def announce(outlet_events: Any, alias: AssetAlias, catalog_name: str, changes: Iterable[Changed]) -> None:
    """Announce changed tables, as events of `alias` that Airflow sends when the task succeeds.

    Args:
        outlet_events: The outlet events of the task's context.
        alias: The alias that the task has as an outlet.
        catalog_name: Name of the lake's catalog.
        changes: The tables.
    """
    for change in changes:
        outlet_events[alias].add(asset_of(catalog_name, change.table), extra=change.extra)


def announced(triggering_asset_events: Mapping[Any, Iterable[Any]], catalog_name: str) -> list[str]:
    """Return the tables whose events started a run, in order; events of other assets are skipped.

    Args:
        triggering_asset_events: Those of the task's context; a run that a person or the clock started has none.
        catalog_name: Name of the lake's catalog.
    """
    # Not from `extra`: an event that a person or a program sends through Airflow's API has none of lakehold's.
    assets = [event.asset for events in triggering_asset_events.values() for event in events]
    uri, name = f"lakehold://{catalog_name}/", f"{catalog_name}."
    return sorted({asset.name.removeprefix(name) for asset in assets if asset.uri.startswith(uri)})
