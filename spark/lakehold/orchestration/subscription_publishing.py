"""Work of the subscriptions DAG: it publishes subscriptions, and refreshes views, that a change of tables has made due."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehold.definitions import name_of
from lakehold.errors import DefinitionError, LakeholdError
from lakehold.orchestration.assets import Changed
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
        failed: Names of subscriptions and views that failed; the log says why.
    """

    changed: tuple[Changed, ...]
    failed: tuple[str, ...]


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
    due, changed = dict[str, None](), {*tables}
    for name in (*defined.in_order(defined.views), *sorted(defined.subscriptions)):
        # A subscription without a hold has not begun, or lost its hold: publishing finds out which.
        if not read.get(entries[name].object_id, changed).isdisjoint(changed):
            due[name] = None
            changed.add(name)
    return sorted(due)


def publish_together(lake: Lake, subscriptions: Sequence[str]) -> Published:
    """Publish subscriptions and views one after the other; one that fails does not keep the others from being published."""
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
    """Publish a subscription, or refresh a view, until now; return its table if that changed the table."""
    before = _newest_snapshot(lake, lake.definitions.definitions().derived(subscription).definition.into)
    reports = lake.publish(subscription, _log)
    if not reports:
        log.info("nothing new for subscription %s", subscription)
        return []
    last = reports[-1]
    return [
        Changed(
            last.table,
            last.snapshot_id,
            last.position_ms,
            mz_timestamp=last.position_ms - 1,
            previous_snapshot_id=before,
        )
    ]


def _newest_snapshot(lake: Lake, table: str) -> int | None:
    """Return the newest snapshot of a table; None if it has none, or if the table cannot be read, which publishing reports."""
    try:
        state = lake.tables.table_state(table)
    except DefinitionError:
        return None
    return state.snapshot_id if state is not None else None


def _log(report: PublishReport) -> None:
    log.info(
        "%s: %s rows of %s timestamps, published up to (not including) %s UTC%s",
        report.table,
        report.rows,
        report.timestamps,
        iso(report.position_ms),
        ", restarted from a snapshot" if report.restarted else "",
    )
