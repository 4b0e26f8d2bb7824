"""Merges the records that the topics of every source hold now into their tables.

One task per source with new messages, in parallel as far as the pool `lakehold_writers` has slots. Sources with few messages come
first, and a task begins no batch after a minute: the next run does not wait for a backlog. Sources with tables over the same
topics share a task, which reads and decodes the topics once; all sources without new messages share one, too, and so do all of
a broker that does not answer, which come last. A batch is
committed whole or not at all: a task that was killed is simply retried, and nothing is applied twice. Each table that changed is
announced as an asset (`lakehold-tables`), which starts the DAGs `lakehold_subscriptions` and `lakehold_quality`.

A table that stops, or a source that fails, does not keep the others from continuing: it becomes a red task of its own, whose log
ends with what to do. Messages that cannot be applied are in `mz_catalog.mz_source_errors`.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, task

from lakehold.orchestration import ingesting
from lakehold.orchestration.assets import TABLES, Announced, announce
from lakehold.orchestration.failures import Failures, failed, gathered, pairs_or_retry, watch, without_busy
from lakehold.orchestration.labels import label
from lakehold.orchestration.lakes import open_lake
from lakehold.orchestration.lineage import report_lineage
from lakehold.orchestration.map_limits import joined
from lakehold.orchestration.pools import WRITERS
from lakehold.orchestration.schedules import SCHEDULES
from lakehold.orchestration.standard import STANDARD

SOURCES = Param(
    [],
    type="array",
    items={"type": "string"},
    title="Sources",
    description="Names, one a line. Empty: all that have tables.",
)


@dag("lakehold_ingest", schedule=SCHEDULES.ingest_schedule, params={"sources": SOURCES}, doc_md=__doc__, **STANDARD)
def ingest_dag() -> None:
    @task(inlets=[TABLES], outlets=[TABLES])
    def sources(params: Any = None, inlet_events: Any = None, outlet_events: Any = None) -> list[dict[str, Any]]:
        with open_lake() as lake:
            announced = ingesting.announced_tables(lake, inlet_events)
            changed = ingesting.changed_by_others(lake, announced)
            announce(outlet_events, TABLES, lake.settings.catalog_name, changed)
            groups = joined(ingesting.chosen_sources(lake, params["sources"]))
            return [{"sources": each, "announced": announced.of(ingesting.tables_of(lake, each))} for each in groups]

    @task(outlets=[TABLES], pool=WRITERS, map_index_template="{{ sources }}")
    def ingest(sources: list[str], announced: dict[str, Any], ti: Any = None, outlet_events: Any = None) -> Failures:
        label("sources", sources)
        with open_lake() as lake:
            done = ingesting.ingest(lake, sources, Announced(**announced))
            announce(outlet_events, TABLES, lake.settings.catalog_name, done.changed)
            report_lineage(lake, done.changed)
        return pairs_or_retry(without_busy(done.stopped, ti), ti)

    ingested = ingest.expand_kwargs(sources())
    tables = failed.override(task_id="table").expand(failure=gathered.override(task_id="stopped_tables")(ingested))
    [ingested, tables] >> watch()


ingest_dag()
