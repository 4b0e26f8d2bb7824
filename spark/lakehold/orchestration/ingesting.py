"""Work of the ingest and backfill DAGs: they bring messages into tables, and report which tables have changed.

Airflow calls a changed table an asset event, which starts other DAGs (`assets.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from lakehold.errors import DefinitionError, LakeholdError
from lakehold.model.shared_sources import together
from lakehold.orchestration.assets import TABLES, Announced, Changed
from lakehold.orchestration.brokers import Brokers, ingest_groups
from lakehold.orchestration.lakes import text_of
from lakehold.times import iso

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

    from lakehold.ingest.batch_report import BatchReport
    from lakehold.lake import Lake
    from lakehold.timeline.table_timeline import Timeline
    from lakehold.timeline.versions import Version

log = logging.getLogger(__name__)

TURN_S = 60
"""How long a task begins batches: the next run, which brings what other sources have got meanwhile, waits for all tasks."""


@dataclass(frozen=True)
class Ingested:
    """The outcome of an ingest.

    Attributes:
        changed: Tables that have changed.
        stopped: The error by name: of each stopped table, and of each source that was not ingested completely.
    """

    changed: tuple[Changed, ...]
    stopped: dict[str, LakeholdError]


def chosen_sources(lake: Lake, wanted: Sequence[str]) -> list[list[str]]:
    """Group the sources called `wanted`, or all that have tables, for a task each: those with few messages come first.

    Sources whose tables share topics form a group. All that have nothing to read are one group, after the others: they only
    move their write frontiers, which takes less time than a task. Sources that cannot be asked come last. All of a broker that
    does not answer are one group, which waits for it once.

    Raises:
        DefinitionError: A source does not exist.
    """
    defined = lake.definitions.definitions()
    brokers = Brokers(lake, defined)
    pending = {name: brokers.pending(name) for name in wanted or defined.sources_with_tables}
    sized: list[tuple[int, list[str]]] = []
    failed: list[list[str]] = []
    down: dict[Hashable, list[str]] = {}
    for group in together([*pending], defined):
        counts = [count for name in group if isinstance(count := pending[name], int)]
        if len(counts) == len(group):
            sized.append((sum(counts), group))
        elif any(map(brokers.down, group)):
            down.setdefault(brokers.place_of(group[0]), []).extend(group)
        else:
            failed.append(group)
    busy = [group for size, group in sorted(sized, key=itemgetter(0)) if size]
    quiet = [name for size, group in sized if not size for name in group]
    return [*busy, *([quiet] if quiet else []), *failed, *down.values()]


def ingest(lake: Lake, sources: Sequence[str], announced: Announced) -> Ingested:
    """Merge the records that the topics of sources have now into their tables, and report each batch in Airflow's log.

    A source begins batches for `TURN_S` seconds, and leaves the rest to the next run.

    Args:
        lake: The lake.
        sources: Their names; records that they share are read once.
        announced: The snapshots that were announced. A table with a later change is reported, also if another run or program
            made it.
    """
    from lakehold.ingest.several_sources import SourceFailed  # noqa: PLC0415 - Airflow imports this to read the DAGs

    stopped: dict[str, LakeholdError] = {}
    touched: set[str] = set()
    defined = lake.definitions.definitions()
    # A person may have dropped one since the tasks were made.
    groups = together([name for name in sources if name in defined.sources], defined)
    for report in ingest_groups(lake, defined, groups, TURN_S):
        if not isinstance(report, SourceFailed):
            _log_batch(report)
            touched.update(table.table for table in report.tables)
            stopped.update(report.stopped)
            continue
        log.error("source %s was not ingested completely: %s", report.source, text_of(report.error))
        stopped[report.source] = report.error
    if not touched:
        log.info("nothing new in %s", ", ".join(sources))
    return Ingested(tuple(changed(lake, tables_of(lake, sources), touched, announced)), stopped)


def tables_of(lake: Lake, sources: Sequence[str]) -> list[str]:
    """Return the full names of the tables that sources feed."""
    defined = lake.definitions.definitions()
    return [entry.definition.full_name for source in sources for entry in defined.tables_of(source)]


def changed(lake: Lake, tables: Collection[str], touched: Collection[str], announced: Announced) -> list[Changed]:
    """Return the readable tables that are `touched`, or whose rows may have changed since they were announced.

    A table whose first snapshot loads, or whose newest rows cannot be read yet, is returned by the run that makes them readable.

    Args:
        lake: The lake.
        tables: Full names; tables without a snapshot are skipped.
        touched: Those of them that this run changed.
        announced: The snapshots that were announced.
    """
    timelines = lake.timelines.readable(tables)
    found = []
    for name in tables:
        if name not in timelines:
            _log_unreadable(lake, name)
            continue
        timeline = timelines[name]
        shown = [version for version in timeline.shown if _is_readable(timeline, version)]
        newest = timeline.table.snapshot_by_id(shown[-1].snapshot_id) if shown else None
        if newest is None:
            continue
        # Its rows may be older than all known events, but were not announced before they could be read.
        at_ms = announced.since_ms if timeline.complete_ms <= announced.since_ms else 0
        before, since = _parted(timeline.table, shown, *announced.newest.get(name, ("", at_ms)))
        is_touched = name in touched and len(shown) == len(timeline.shown)
        if not is_touched and all(version.is_rewrite for version in since):
            continue
        found.append(
            Changed(
                name,
                newest.snapshot_id,
                newest.timestamp_ms,
                mz_timestamp=max(shown[-1].mz_timestamp, timeline.since_ms),
                previous_snapshot_id=before[-1].snapshot_id if before else None,
            )
        )
    return found


def _is_readable(timeline: Timeline, version: Version) -> bool:
    """Return whether a version can be read; one of a foreign writer can as soon as the lag of such writers is over."""
    return timeline.source is None or max(version.mz_timestamp, timeline.since_ms) < timeline.upper_ms


def _log_unreadable(lake: Lake, name: str) -> None:
    try:
        lake.timelines.of([name])
    except DefinitionError as error:
        log.info("%s is not announced: %s", name, error.message)


def _parted(
    table: IcebergTable, shown: Sequence[Version], snapshot_id: str, at_ms: int
) -> tuple[Sequence[Version], Sequence[Version]]:
    """Divide versions into those until the snapshot that was announced last, and those after it.

    If that snapshot is expired or not known, its commit time divides them. It needs no tolerance for clocks: where not all events
    are known, the oldest of them is several runs old.
    """
    places = [place for place, version in enumerate(shown, 1) if str(version.snapshot_id) == snapshot_id]
    if not places:
        committed = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.metadata.snapshots}
        places = [place for place, version in enumerate(shown, 1) if committed.get(version.snapshot_id, 0) <= at_ms]
    place = places[-1] if places else 0
    return shown[:place], shown[place:]


def announced_tables(lake: Lake, inlet_events: Any) -> Announced:
    """Read which snapshots of tables were announced, from the inlet events of a task with `TABLES` as an inlet."""
    names = [*lake.definitions.definitions().tables, *_tables_of_others(lake)]
    return Announced.read(inlet_events, TABLES, lake.settings.catalog_name, names)


def changed_by_others(lake: Lake, announced: Announced) -> list[Changed]:
    """Return the tables of other writers that subscriptions or durable clients read, and that have changed."""
    return changed(lake, _tables_of_others(lake), (), announced)


def _tables_of_others(lake: Lake) -> list[str]:
    defined = lake.definitions.definitions()
    held = {table.full_name for hold in lake.holds.all() if hold.kept_by is not None for table in hold.tables}
    return sorted(held - {*defined.tables, *defined.views})


@dataclass(frozen=True)
class Filled:
    """The outcome of a backfill.

    Attributes:
        changed: Tables that have changed.
        errors: For each table the error that keeps it from being in sync with its source; empty if it is in sync.
    """

    changed: tuple[Changed, ...]
    errors: dict[str, LakeholdError | str]


def behind(lake: Lake, wanted: Sequence[str]) -> list[list[str]]:
    """Group the tables called `wanted`, or all new and stopped ones, by the source that feeds them.

    Raises:
        DefinitionError: A table does not exist, or no source feeds it.
    """
    found = lake.behind(wanted or None)
    if not found:
        log.info("all tables are in sync with the others of their sources: nothing to do")
    return found


def backfill(lake: Lake, tables: Sequence[str], announced: Announced) -> Filled:
    """Bring tables of a source, and others that catch up with them, in sync with the rest of the source.

    The tables are reported as changed also if a try that died has changed them.
    """
    touched = {*tables}

    def batch(report: BatchReport) -> None:
        _log_batch(report)
        touched.update(table.table for table in report.tables)

    reports = lake.backfill(tables, batch)
    for report in reports:
        if report.is_there and report.since_ms is not None:
            log.info("%s is readable from %s UTC on", report.table, iso(report.since_ms))
    found = changed(lake, sorted(touched), touched, announced)
    return Filled(tuple(found), {report.table: report.error or "" for report in reports})


def _log_batch(report: BatchReport) -> None:
    if report.waiting is not None:
        log.info("waiting for the rest of %s: %s", report.waiting.what, report.waiting.detail)
    if not report.tables and not report.stopped and not report.malformed:
        return
    log.info(
        "batch %s of %s (%s): %s messages in %s ms",
        iso(report.timestamp_ms),
        report.source,
        report.reader,
        report.records,
        report.elapsed_ms,
    )
    for table in report.tables:
        log.info(
            "  %s: %s messages, %s inserted, %s updated, %s deleted, %s repeated, %s errors",
            table.table,
            table.records,
            table.inserted,
            table.updated,
            table.deleted,
            table.repeated,
            table.errors,
        )
        if table.errors:
            log.warning("  %s: messages that could not be applied are in mz_catalog.mz_source_errors", table.table)
    if report.malformed:
        log.warning("  %s malformed lines are in mz_catalog.mz_source_errors", report.malformed)
    for name, error in report.stopped.items():
        log.error("  %s is stopped: %s", name, text_of(error))
