"""Assets: each table is one, and its changes are events of the asset.

DAGs that depend on a table start with these events, and need no sensor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow.sdk import Asset, AssetAlias, AssetAll, AssetOrTimeSchedule, CronTriggerTimetable

from lakehold.times import epoch_ms

TABLES = AssetAlias("lakehold-tables", group="lakehold")
"""All tables that sources feed or subscriptions read: a DAG with this schedule runs after each change of any of them."""

# A run that failed has used up its events: a run by the clock finds what is left, also of tables that change no more.
AFTER_CHANGES = AssetOrTimeSchedule(
    timetable=CronTriggerTimetable("*/10 * * * *", timezone="UTC"), assets=AssetAll(TABLES)
)
"""The schedule of DAGs that run after changes of tables, and every 10 minutes for all tables."""

OUTPUTS = AssetAlias("lakehold-outputs", group="lakehold")
"""All tables that subscriptions publish into, and all materialized views."""

_PORTION = 200
"""Events that one request reads."""


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
    found = (_table_of(event.asset, catalog_name) for events in triggering_asset_events.values() for event in events)
    return sorted({table for table in found if table is not None})


def _table_of(asset: Any, catalog_name: str) -> str | None:
    is_table = asset.uri.startswith(f"lakehold://{catalog_name}/")
    return str(asset.name).removeprefix(f"{catalog_name}.") if is_table else None


@dataclass(frozen=True)
class Announced:
    """The newest snapshot of each table that an event of an alias has announced. Airflow keeps the event if its task succeeds.

    Attributes:
        newest: Id and commit time of the snapshot, by the table's full name. Ids are text, so that XCom can keep them.
        since_ms: A table that is not in `newest` has no event since this time; 0: it has none at all. Epoch milliseconds.
    """

    newest: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    since_ms: int = 0

    @classmethod
    def read(cls, inlet_events: Any, alias: AssetAlias, catalog_name: str, tables: Collection[str]) -> Announced:
        """Read the newest events, until each table has one, or as many as several runs that change all tables send.

        Portions keep each request short: Airflow's API server runs queries for each event, and tasks wait only seconds for it.

        Args:
            inlet_events: The inlet events of the context of a task that has `alias` as an inlet.
            alias: `TABLES` or `OUTPUTS`.
            catalog_name: Name of the lake's catalog.
            tables: Full names of the lake's tables that events of `alias` announce.
        """
        newest: dict[str, tuple[str, int]] = {}
        found: dict[int, Any] = {}
        wanted = {*tables}
        accessor = inlet_events[alias].ascending(ascending=False).limit(_PORTION)
        while True:
            portion = list(accessor)
            # A portion begins with the events of the last one's end, at the same time.
            new = {event.id: event for event in portion if event.id not in found}
            for event in new.values():
                table, extra = _table_of(event.asset, catalog_name), event.extra or {}
                if table is not None and {"snapshot_id", "at_ms"} <= extra.keys():
                    newest.setdefault(table, (extra["snapshot_id"], extra["at_ms"]))
            found |= new
            if len(portion) < _PORTION:
                return cls(newest)
            oldest = portion[-1].timestamp
            if not new or wanted <= newest.keys() or len(found) >= 4 * len(wanted) + 50:
                return cls(newest, epoch_ms(oldest))
            accessor = accessor.before(oldest.isoformat())

    def of(self, tables: Collection[str]) -> dict[str, Any]:
        """Return the part for `tables` as XCom keeps it: the arguments of another `Announced`."""
        return asdict(Announced({name: self.newest[name] for name in tables if name in self.newest}, self.since_ms))
