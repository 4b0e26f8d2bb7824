"""Publishes what subscriptions are due.

Starts when tables change (assets `lakehold-tables`), and appends to the output of each subscription that reads one of them, each
timestamp once, wherever the last one stopped. Outputs that changed are announced as assets (`lakehold-outputs`).

One that fell behind its MAX LAG is red, and its log says how to go on; the others are not touched by it.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, get_current_context, task

from lakehold.orchestration import publishing
from lakehold.orchestration.assets import OUTPUTS, TABLES, announce, announced
from lakehold.orchestration.lakes import open_lake
from lakehold.orchestration.standard import STANDARD

SUBSCRIPTIONS = Param(
    [],
    type="array",
    items={"type": "string"},
    title="Subscriptions",
    description="Names, one a line. Empty: those that read what has changed; all, when a person triggers it.",
)


@dag("lakehold_subscriptions", schedule=[TABLES], params={"subscriptions": SUBSCRIPTIONS}, doc_md=__doc__, **STANDARD)
def subscriptions_dag() -> None:
    @task
    def due(params: Any = None, triggering_asset_events: Any = None) -> list[str]:
        with open_lake() as lake:
            return publishing.due_subscriptions(lake, params["subscriptions"], announced(triggering_asset_events))

    @task(outlets=[OUTPUTS], map_index_template="{{ subscription }}")
    def publish(subscription: str, outlet_events: Any = None) -> None:
        get_current_context()["subscription"] = subscription  # type: ignore[typeddict-unknown-key]
        with open_lake() as lake:
            changed = publishing.publish(lake, subscription)
            announce(outlet_events, OUTPUTS, lake.settings.catalog_name, changed)

    publish.expand(subscription=due())


subscriptions_dag()
