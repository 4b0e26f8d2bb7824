"""Work of the subscriptions DAG: it publishes subscriptions, and refreshes views, that a change of tables has made due."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakehold.definitions import name_of
from lakehold.errors import LakeholdError
from lakehold.orchestration.assets import OUTPUTS, Announced, Changed
from lakehold.orchestration.ingesting import changed
from lakehold.orchestration.lakes import text_of
from lakehold.times import iso

if TYPE_CHECKING:
    from lakehold.lake import Lake
    from lakehold.publish.publisher import PublishReport

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Published:
    """The outcome of publishing several subscriptions and views.

    Attributes:
        changed: Output tables and views that have changed.
        failed: The errors of subscriptions and views that failed, by name.
    """

    changed: tuple[Changed, ...]
    failed: dict[str, Exception]


def due_subscriptions(lake: Lake, wanted: Sequence[str], tables: Sequence[str]) -> list[str]:
    """Return the subscriptions and views called `wanted`; else those that read one of `tables`, which changed; else all.

    Those that read a view which is due are due, too.

    Raises:
        DefinitionError: There is no such subscription or view.
    """
    defined = lake.definitions.definitions()
    if wanted:
        return [name_of(defined.derived(name).definition) for name in wanted]
    entries = {name_of(entry.definition): entry for entry in defined.all_derived.values()}
    if not tables:
        return sorted(entries)
    read = {
        hold.kept_by: {table.full_name for table in hold.tables}
        for hold in lake.holds.all()
        if hold.kept_by is not None
    }
    due, touched = dict[str, None](), {*tables}
    for name in (*defined.in_order(defined.views), *sorted(defined.subscriptions)):
        # A subscription without a hold has not begun, or lost its hold: publishing finds out which.
        if not read.get(entries[name].object_id, touched).isdisjoint(touched):
            due[name] = None
            touched.add(name)
    return sorted(due)


def announced_outputs(lake: Lake, inlet_events: Any) -> Announced:
    """Read which snapshots of outputs and views were announced, from the inlet events of a task with `OUTPUTS` as an inlet."""
    outputs = [entry.definition.into for entry in lake.definitions.definitions().all_derived.values()]
    return Announced.read(inlet_events, OUTPUTS, lake.settings.catalog_name, outputs)


def publish_together(lake: Lake, subscriptions: Sequence[str], announced: Announced) -> Published:
    """Publish subscriptions and views one after the other; one that fails does not keep the others from being published."""
    found: list[Changed] = []
    failed: dict[str, Exception] = {}
    for name in subscriptions:
        try:
            found += publish(lake, name, announced)
        except LakeholdError as error:
            log.error("subscription %s failed: %s", name, text_of(error))
            failed[name] = error
        except Exception as error:  # the task that retries it raises it
            log.exception("subscription %s failed", name)
            failed[name] = error
    return Published(tuple(found), failed)


def publish(lake: Lake, subscription: str, announced: Announced) -> list[Changed]:
    """Publish a subscription, or refresh a view, until now; return its table if its rows may have changed.

    Args:
        lake: The lake.
        subscription: Name of the subscription or view.
        announced: The snapshots that were announced. The table is also returned for a later commit of another run or program.
    """
    reports = lake.publish(subscription, _log)
    if not reports:
        log.info("nothing new for subscription %s", subscription)
    touched = {report.table for report in reports}
    below_ms = lake.subscriptions.published_below(subscription)
    if below_ms is None:
        return []
    table = lake.definitions.definitions().derived(subscription).definition.into
    return [
        replace(each, at_ms=below_ms, mz_timestamp=below_ms - 1) for each in changed(lake, [table], touched, announced)
    ]


def _log(report: PublishReport) -> None:
    log.info(
        "%s: %s rows of %s timestamps, published up to (not including) %s UTC%s",
        report.table,
        report.rows,
        report.timestamps,
        iso(report.position_ms),
        ", restarted from a snapshot" if report.restarted else "",
    )
