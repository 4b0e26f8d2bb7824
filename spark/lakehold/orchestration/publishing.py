"""What the subscriptions DAG does: publishes what a change of tables has made due."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakehold.orchestration.assets import Changed
from lakehold.times import iso

if TYPE_CHECKING:
    from lakehold.lake import Lake
    from lakehold.publish.publisher import PublishReport

log = logging.getLogger(__name__)


def due_subscriptions(lake: Lake, wanted: Sequence[str], tables: Sequence[str]) -> list[str]:
    """The subscriptions called `wanted`; else those that read one of `tables`; without either, all.

    Raises:
        DefinitionError: There is no such subscription.
    """
    defined = lake.definitions.definitions()
    if wanted:
        return [defined.subscription(name).definition.name for name in wanted]
    entries = defined.subscriptions.values()
    if not tables:
        return sorted(entry.definition.name for entry in entries)
    read = {
        hold.kept_by: {table.full_name for table in hold.tables}
        for hold in lake.holds.all()
        if hold.kept_by is not None
    }
    # One without a hold has not begun, or lost it: publishing says which.
    return sorted(e.definition.name for e in entries if not read.get(e.object_id, {*tables}).isdisjoint(tables))


def publish(lake: Lake, subscription: str) -> list[Changed]:
    """Append what a subscription gives until now to its table; the output table, if that changed it."""
    reports = lake.publish(subscription, _log)
    if not reports:
        log.info("nothing new for subscription %s", subscription)
        return []
    last = reports[-1]
    return [Changed(last.table, last.snapshot_id, last.position_ms)]


def _log(report: PublishReport) -> None:
    log.info(
        "%s: %s rows of %s timestamps, all below %s UTC is published%s",
        report.table,
        report.rows,
        report.timestamps,
        iso(report.position_ms),
        ", begun anew from a snapshot" if report.restarted else "",
    )
