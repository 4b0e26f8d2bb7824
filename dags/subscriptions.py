"""Publishes subscriptions and refreshes materialized views whose tables have changed.

It starts when tables change (assets `lakehold-tables`). For each subscription that reads one of them, it appends the new
timestamps to the output table, each once, and continues where the last run stopped. It merges them into each view, before all
that read the view. Every 10 minutes it publishes all, and so what a failed run left. Outputs and views that changed are announced
as assets (`lakehold-outputs`).

Subscriptions that read the same tables are published by one task, which reads each change once. A subscription that fails in
it is retried by a task of its own. A subscription that exceeded its MAX LAG stays red, and its log says how to continue; the
others are not affected.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, task

from lakehold.orchestration import subscription_publishing
from lakehold.orchestration.assets import AFTER_CHANGES, OUTPUTS, announce, announced
from lakehold.orchestration.failures import watch
from lakehold.orchestration.labels import label
from lakehold.orchestration.lakes import open_lake
from lakehold.orchestration.lineage import report_lineage
from lakehold.orchestration.map_limits import joined
from lakehold.orchestration.standard import STANDARD

SUBSCRIPTIONS = Param(
    [],
    type="array",
    items={"type": "string"},
    title="Subscriptions",
    description="Names, one a line, of views with their namespace. Empty: those that read what has changed; all, when a person "
    "or the clock starts it.",
)


@dag(
    "lakehold_subscriptions",
    schedule=AFTER_CHANGES,
    params={"subscriptions": SUBSCRIPTIONS},
    doc_md=__doc__,
    **STANDARD,
)
def subscriptions_dag() -> None:
    @task
    def due(params: Any = None, triggering_asset_events: Any = None) -> list[list[str]]:
        with open_lake() as lake:
            changed = announced(triggering_asset_events, lake.settings.catalog_name)
            names = subscription_publishing.due_subscriptions(lake, params["subscriptions"], changed)
            return joined(lake.subscriptions.together(names))

    @task(inlets=[OUTPUTS], outlets=[OUTPUTS], map_index_template="{{ subscriptions }}")
    def publish(subscriptions: list[str], inlet_events: Any = None, outlet_events: Any = None) -> list[str]:
        label("subscriptions", subscriptions)
        with open_lake() as lake:
            known = subscription_publishing.announced_outputs(lake, inlet_events)
            published = subscription_publishing.publish_together(lake, subscriptions, known)
            announce(outlet_events, OUTPUTS, lake.settings.catalog_name, published.changed)
            report_lineage(lake, published.changed)
        return list(published.failed)

    @task(trigger_rule="all_done", retries=0)
    def failed(published: Any) -> list[list[str]]:
        return joined([[name] for names in published for name in names or []])

    @task(inlets=[OUTPUTS], outlets=[OUTPUTS], map_index_template="{{ subscriptions }}")
    def publish_alone(subscriptions: list[str], inlet_events: Any = None, outlet_events: Any = None) -> None:
        label("subscriptions", subscriptions)
        with open_lake() as lake:
            known = subscription_publishing.announced_outputs(lake, inlet_events)
            # There are several only if hundreds failed.
            published = subscription_publishing.publish_together(lake, subscriptions, known)
            announce(outlet_events, OUTPUTS, lake.settings.catalog_name, published.changed)
            report_lineage(lake, published.changed)
            for error in published.failed.values():
                raise error

    published = publish.expand(subscriptions=due())
    alone = publish_alone.expand(subscriptions=failed(published))
    [published, alone] >> watch()


subscriptions_dag()
