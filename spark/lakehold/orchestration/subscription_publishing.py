"""Work of the subscriptions DAG: it publishes subscriptions that a change of tables has made due."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehold.errors import LakeholdError
from lakehold.orchestration.assets import Changed
from lakehold.orchestration.lakes import text_of
from lakehold.times import iso

if TYPE_CHECKING:
    from lakehold.lake import Lake
    from lakehold.publish.publisher import PublishReport

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Published:
    """The outcome of publishing several subscriptions.

    Attributes:
        changed: Output tables that have changed.
        failed: Names of subscriptions that failed; the log says why.
    """

    changed: tuple[Changed, ...]
    failed: tuple[str, ...]


def due_subscriptions(lake: Lake, wanted: Sequence[str], tables: Sequence[str]) -> list[str]:
    """Return the subscriptions called `wanted`; else those that read one of `tables`, which changed; without either, all.

    Raises:
        DefinitionError: A subscription does not exist.
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
    # A subscription without a hold has not begun, or lost its hold: publishing finds out which.
    return sorted(e.definition.name for e in entries if not read.get(e.object_id, {*tables}).isdisjoint(tables))


def publish_together(lake: Lake, subscriptions: Sequence[str]) -> Published:
    """Publish several subscriptions one after the other; one that fails does not keep the others from being published."""
    changed: list[Changed] = []
    failed = []
    for name in subscriptions:
        try:
            changed += publish(lake, name)
        except LakeholdError as error:
            log.error("subscription %s failed: %s", name, text_of(error))
            failed.append(name)
        except Exception:  # the task that retries it raises it
            log.exception("subscription %s failed", name)
            failed.append(name)
    return Published(tuple(changed), tuple(failed))


def publish(lake: Lake, subscription: str) -> list[Changed]:
    """Append what a subscription gives until now to its table; return the output table if that changed it."""
    reports = lake.publish(subscription, _log)
    if not reports:
        log.info("nothing new for subscription %s", subscription)
        return []
    last = reports[-1]
    return [Changed(last.table, last.snapshot_id, last.position_ms)]


def _log(report: PublishReport) -> None:
    log.info(
        "%s: %s rows of %s timestamps, published up to (not including) %s UTC%s",
        report.table,
        report.rows,
        report.timestamps,
        iso(report.position_ms),
        ", restarted from a snapshot" if report.restarted else "",
    )
