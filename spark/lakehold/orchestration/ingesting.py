"""What the ingest and backfill DAGs do with sources."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakehold.errors import DefinitionError, LakeholdError, TransactionIncomplete
from lakehold.model.sharing import together
from lakehold.orchestration.assets import Changed
from lakehold.orchestration.lakes import text_of
from lakehold.times import iso

if TYPE_CHECKING:
    from lakehold.ingest.batch import BatchReport
    from lakehold.lake import Lake

log = logging.getLogger(__name__)

CLOCKS_APART_MS = 60_000
"""How far the clocks of Airflow and of the writers may be apart, in milliseconds."""


@dataclass(frozen=True)
class Ingested:
    """What an ingest left behind.

    Attributes:
        changed: Tables that have changed.
        stopped: Tables that cannot go on, or the source that waits for a transaction, with their errors as text.
    """

    changed: tuple[Changed, ...]
    stopped: dict[str, str]


def chosen_sources(lake: Lake, wanted: Sequence[str]) -> list[list[str]]:
    """The sources called `wanted`, or all that have tables; those whose tables share topics together.

    Raises:
        DefinitionError: There is no such source.
    """
    defined = lake.definitions.definitions()
    return together(wanted or defined.sources_with_tables, defined)


def ingest(lake: Lake, sources: Sequence[str], since: datetime | None) -> Ingested:
    """Bring the tables of sources to what their topics hold now; the task's log tells what each batch did.

    Tables that have much to catch up with are left to the next run after a while.

    Args:
        lake: The lake.
        sources: Those that share topics: what they read of these they read once.
        since: When the last run began that told of all changes: who changed a table since then, and died before it could
            tell, is told for.

    Raises:
        LakeholdError: What kept a source from it may pass; the others were ingested.
    """
    from lakehold.ingest.pace import CATCH_UP_S  # noqa: PLC0415 - Airflow imports this to read the DAGs
    from lakehold.ingest.together import SourceFailed  # noqa: PLC0415 - see above

    stopped: dict[str, str] = {}
    touched: set[str] = set()
    failed: list[LakeholdError] = []
    for report in lake.batches_together(sources, catch_up_s=CATCH_UP_S):
        if not isinstance(report, SourceFailed):
            _log_batch(report)
            touched.update(table.table for table in report.tables)
            stopped.update({table: text_of(error) for table, error in report.stopped.items()})
        elif isinstance(report.error, TransactionIncomplete):
            stopped[report.source] = text_of(report.error)
        else:
            log.error("source %s was not ingested: %s", report.source, text_of(report.error))
            failed.append(report.error)
    if failed:
        raise failed[0]
    if not touched:
        log.info("nothing new in %s", ", ".join(sources))
    defined = lake.definitions.definitions()
    fed = [entry.definition.full_name for source in sources for entry in defined.tables_of(source)]
    return Ingested(tuple(changed(lake, fed, touched, since)), stopped)


def changed(lake: Lake, tables: Sequence[str], touched: set[str], since: datetime | None) -> list[Changed]:
    """Those of `tables` that are `touched`, or have a snapshot that is not older than `since`."""
    found = []
    for name in tables:
        try:
            state = lake.tables.table_state(name)
        except DefinitionError as error:
            log.warning("%s: %s", name, error.message)
            continue
        newest = state.table.current_snapshot() if state is not None else None
        if newest is None:
            continue
        # Airflow gives a proxy, which is false where there was no such run, and never None.
        is_new = not since or newest.timestamp_ms >= since.timestamp() * 1000 - CLOCKS_APART_MS
        if name in touched or is_new:
            found.append(Changed(name, newest.snapshot_id, newest.timestamp_ms))
    return found


def changed_by_others(lake: Lake, since: datetime | None) -> list[Changed]:
    """Tables of other writers that subscriptions read, and that have changed."""
    defined = lake.definitions.definitions()
    held = {table.full_name for hold in lake.holds.all() if hold.kept_by is not None for table in hold.tables}
    return changed(lake, sorted(held - set(defined.tables)), set(), since)


@dataclass(frozen=True)
class Filled:
    """What a backfill left behind.

    Attributes:
        changed: Tables that have changed.
        errors: By table what keeps it from being with the others of its source; empty: it is.
    """

    changed: tuple[Changed, ...]
    errors: dict[str, str]


def behind(lake: Lake, wanted: Sequence[str]) -> list[list[str]]:
    """The tables called `wanted`, or all that are behind; those of one source together, which one reader may fill.

    Raises:
        DefinitionError: There is no such table, or no source feeds it.
    """
    found = lake.behind(wanted or None)
    if not found:
        log.info("all tables are with the others of their sources: there is nothing to do")
    return found


def backfill(lake: Lake, tables: Sequence[str]) -> Filled:
    """Bring tables of a source to where the others of it are, and those along with them.

    Raises:
        LakeholdError: What kept them from it may pass.
    """
    touched: set[str] = set()

    def batch(report: BatchReport) -> None:
        _log_batch(report)
        touched.update(table.table for table in report.tables)

    reports = lake.backfill(tables, batch)
    for report in reports:
        if report.error is not None and report.error.retryable:
            raise report.error
        if report.is_there and report.since_ms is not None:
            log.info("%s is readable from %s UTC on", report.table, iso(report.since_ms))
    found = changed(lake, sorted(touched | {*tables}), {*tables, *touched}, datetime.now(UTC))
    return Filled(tuple(found), {r.table: text_of(r.error) if r.error is not None else "" for r in reports})


def _log_batch(report: BatchReport) -> None:
    if report.waiting is not None:
        log.info("waiting for %s to come whole: %s", report.waiting.what, report.waiting.detail)
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
            log.warning("  %s: what could not be applied is in mz_catalog.mz_source_errors", table.table)
    if report.malformed:
        log.warning("  %s malformed lines are in mz_catalog.mz_source_errors", report.malformed)
    for name, error in report.stopped.items():
        log.error("  %s is stopped: %s", name, text_of(error))
