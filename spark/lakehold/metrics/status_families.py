"""Prometheus families from the facts about a lake. Pure: no label has a value that the lake's definitions do not bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily

from lakehold.overview import Overview
from lakehold.overview.facts import CheckFacts, FollowerFacts, HoldFacts, SourceFacts, TableFacts
from lakehold.overview.table_status import State


class Family(NamedTuple):
    """A family of gauges: its help, and the names of its labels."""

    help: str
    labels: tuple[str, ...] = ()


_TABLE = ("source", "table")
_FOLLOWER = ("kind", "subscription")
_VERDICT = ("table", "check", "hold")

STATUS_FAMILIES: Mapping[str, Family] = {
    "lakehold_up": Family("1 if the status of the lake could be read; 0 leaves the other families out."),
    "lakehold_status_seconds": Family("How long reading the status took."),
    "lakehold_tables": Family("Tables and views, by state.", ("state",)),
    "lakehold_table_stopped": Family("1 if an error stopped the table.", _TABLE),
    "lakehold_table_rows": Family("Rows, at most.", _TABLE),
    "lakehold_table_open_errors": Family(
        "Messages in error that no later one has healed; of a view the keys with several rows.", _TABLE
    ),
    "lakehold_table_since_timestamp_seconds": Family("Earliest readable time (inclusive).", _TABLE),
    "lakehold_table_upper_timestamp_seconds": Family("First time that is not readable yet.", _TABLE),
    "lakehold_table_lag_seconds": Family("How long ago the table's upper was; only of tables with a source.", _TABLE),
    "lakehold_table_behind_records": Family(
        "Offsets of the table's topic that it has not read, no fewer than records.", _TABLE
    ),
    "lakehold_source_lag_seconds": Family("How long ago the upper of the source's tables in sync was.", ("source",)),
    "lakehold_source_reachable": Family(
        "1 if the broker or the directory of the source answered in time.", ("source",)
    ),
    "lakehold_source_running": Family("1 if a process ingests the source.", ("source",)),
    "lakehold_source_interrupted": Family("1 if a batch was begun and no process finishes it.", ("source",)),
    "lakehold_source_stopped_tables": Family("Tables of the source that an error stopped.", ("source",)),
    "lakehold_capture_problems": Family("Connectors that do not run, and tables that are not captured."),
    "lakehold_hold_lag_seconds": Family("How far the hold is behind the upper of its tables.", ("hold",)),
    "lakehold_hold_max_lag_seconds": Family("MAX LAG of the hold.", ("hold",)),
    "lakehold_hold_forced": Family("1 if MAX LAG moved the hold, and nobody has advanced it since.", ("hold",)),
    "lakehold_subscription_position_timestamp_seconds": Family(
        "It has taken all changes below (exclusive).", _FOLLOWER
    ),
    "lakehold_subscription_lag_seconds": Family("How far it is behind the upper of its tables.", _FOLLOWER),
    "lakehold_subscription_max_lag_seconds": Family("The lag after which it lapses.", _FOLLOWER),
    "lakehold_subscription_lapsed": Family("1 if changes that it has not taken can no longer be read.", _FOLLOWER),
    "lakehold_verdict_success": Family("1 if the newest check or comparison succeeded.", _VERDICT),
    "lakehold_verdict_timestamp_seconds": Family("When that check or comparison ran.", _VERDICT),
}
"""Every family of the status, by name."""

SUITE = "suite"
"""Value of the label `check` for a suite; `database` and `query` are comparisons."""


class StatusFamilies:
    """The families of one reading of the status."""

    def __init__(self) -> None:
        self._families = {
            name: GaugeMetricFamily(name, of.help, labels=of.labels) for name, of in STATUS_FAMILIES.items()
        }

    def families(self) -> list[GaugeMetricFamily]:
        """Return the families that have a value."""
        return [family for family in self._families.values() if family.samples]

    def put(self, name: str, value: float | None, *labels: str) -> None:
        """Add a value; None is not known, and has no sample."""
        if value is not None:
            self._families[f"lakehold_{name}"].add_metric(labels, value)

    def put_lake(self, overview: Overview, unread: Mapping[str, Mapping[str, int] | None]) -> None:
        """Add what is known about a lake.

        Args:
            overview: The facts.
            unread: For each source how many offsets each of its tables has not read; None: the source did not answer.
        """
        states = Counter(table.state for table in overview.tables)
        for state in State:
            self.put("tables", states[state], state.value)
        for table in overview.tables:
            self._put_table(table, overview.taken_at_ms, unread.get(table.source or ""))
        for source in overview.sources:
            self._put_source(source, overview.taken_at_ms)
        for source_name, found in unread.items():
            self.put("source_reachable", found is not None, source_name)
        for hold in overview.holds:
            self._put_hold(hold)
        for follower in overview.followers:
            self._put_follower(follower)

    def _put_table(self, table: TableFacts, at_ms: int, unread: Mapping[str, int] | None) -> None:
        labels = (table.source or "", table.name)
        self.put("table_stopped", table.state is State.STOPPED or table.error is not None, *labels)
        self.put("table_rows", table.rows, *labels)
        self.put("table_open_errors", table.open_errors + table.key_violations, *labels)
        self.put("table_since_timestamp_seconds", _seconds(table.since_ms), *labels)
        self.put("table_upper_timestamp_seconds", _seconds(table.upper_ms), *labels)
        if table.source is not None:
            self.put("table_lag_seconds", _lag(table.upper_ms, at_ms), *labels)
            self.put("table_behind_records", (unread or {}).get(table.name), *labels)
        for check in table.checks:
            self._put_verdict(table.name, check)

    def _put_source(self, source: SourceFacts, at_ms: int) -> None:
        self.put("source_lag_seconds", _lag(source.upper_ms, at_ms), source.name)
        self.put("source_running", source.run_by is not None, source.name)
        self.put("source_interrupted", source.interrupted_ms is not None, source.name)
        self.put("source_stopped_tables", source.stopped, source.name)

    def _put_hold(self, hold: HoldFacts) -> None:
        self.put("hold_lag_seconds", hold.lag_ms / 1000, hold.name)
        self.put("hold_max_lag_seconds", hold.max_lag_ms / 1000, hold.name)
        self.put("hold_forced", hold.forced_from_ms is not None, hold.name)

    def _put_follower(self, follower: FollowerFacts) -> None:
        labels = (follower.kind.value, follower.name)
        self.put("subscription_position_timestamp_seconds", _seconds(follower.position_ms), *labels)
        self.put("subscription_lag_seconds", _seconds(follower.lag_ms), *labels)
        if follower.hold is not None:
            self.put("subscription_max_lag_seconds", follower.hold.max_lag_ms / 1000, *labels)
        self.put("subscription_lapsed", follower.is_lapsed, *labels)

    def _put_verdict(self, table: str, check: CheckFacts) -> None:
        labels = (table, check.compared_with or SUITE, check.hold or "")
        self.put("verdict_success", check.success, *labels)
        self.put("verdict_timestamp_seconds", _seconds(check.checked_at_ms), *labels)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _lag(upper_ms: int | None, at_ms: int) -> float | None:
    return None if upper_ms is None else max(0, at_ms - upper_ms) / 1000
