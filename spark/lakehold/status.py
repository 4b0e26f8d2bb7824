"""The status of every table, for `lakehold status`: from the lake's metadata, and for captured sources also from upstream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lakehold.errors import DefinitionError
from lakehold.iceberg.data_tables import TableState
from lakehold.ingest.envelope.unfilled_columns import unfilled_columns, unfilled_detail, unfilled_hint
from lakehold.lake import Lake
from lakehold.model.lake_definitions import Definitions
from lakehold.model.readers import Waiting
from lakehold.overview.table_status import State, TableStatus, table_statuses
from lakehold.publish.subscriptions import VIEW_COLUMNS
from lakehold.sql.result import Result
from lakehold.timeline.table_timeline import Timeline
from lakehold.times import iso

COLUMNS = (
    "table",
    "source",
    "state",
    "since",
    "upper",
    "rows",
    "open_errors",
    "stopped_by",
    "waiting_for",
    "read",
    "behind",
)


def status_of(lake: Lake) -> Result:
    """Return one row for each table that a source feeds, and each materialized view: readable window, rows, what stopped it.

    For a table that is catching up, the row also has how many offsets its reader has read, and how many are left. For a table
    that waits for an upstream transaction, it names the transaction. Notices report connectors that do not run, parts of
    messages that no table can hold, and new columns that may lack values in older rows.
    """
    defined = lake.definitions.definitions()
    found = table_statuses(defined, lake.batches.all_readers())
    notices, rows = [*_notices(lake, defined, found)], []
    for status in found:
        table, stopped_by = _table(lake, status)
        rows.append(_row(status, table, stopped_by))
        if table is not None and status.progress is not None:
            notices += _unfilled(status.full_name, unfilled_columns(table, status.progress.high_water_marks))
    timelines = lake.timelines.readable(sorted(defined.views))
    shown = (dict(zip(VIEW_COLUMNS, values, strict=True)) for values in lake.subscriptions.views())
    rows += [_view_row(lake, view, timelines.get(view["name"])) for view in shown]
    return Result(COLUMNS, rows, tuple(notices))


def notices_of(lake: Lake) -> tuple[str, ...]:
    """Return the notices that need no table's metadata: all but those on new columns."""
    defined = lake.definitions.definitions()
    return tuple(_notices(lake, defined, table_statuses(defined, lake.batches.all_readers())))


def _notices(lake: Lake, defined: Definitions, found: Iterable[TableStatus]) -> Iterator[str]:
    if any(entry.definition.capture is not None for entry in defined.sources.values()):
        yield from lake.captured.problems()
    for status in found:
        for sentence in status.progress.left_out if status.progress is not None else ():
            yield f"{status.full_name}: {sentence}"


def _view_row(lake: Lake, view: dict[str, Any], timeline: Timeline | None) -> tuple[Any, ...]:
    """Return the row of a materialized view, its violated keys as open errors; without a timeline it is not readable yet."""
    name, stopped_by = view["name"], view["stopped_by"]
    state = State.VIEW if stopped_by is None else State.STOPPED
    table = lake.tables.table_state(name) if timeline is not None else None
    rows = table.row_count if table is not None else 0
    since, upper = (iso(timeline.since_ms), iso(timeline.upper_ms)) if timeline is not None else (None, None)
    return (name, None, state.value, since, upper, rows, view["key_violations"], stopped_by, None, None, None)


def _row(status: TableStatus, table: TableState | None, stopped_by: str | None) -> tuple[Any, ...]:
    name, source, reader, progress = status.full_name, status.source, status.reader, status.progress
    if reader is None or progress is None:
        return (name, source, status.state.value, None, None, None, 0, None, None, None, None)
    rows = table.row_count if table is not None else 0 if stopped_by is None else None
    if reader.error is not None:
        stopped_by = f"{reader.error.code}: {reader.error.message}"
    upper_ms = reader.upper_of(name)
    return (
        name,
        source,
        status.state.value,
        iso(progress.since_ms) if progress.since_ms is not None else None,
        iso(upper_ms) if upper_ms is not None else None,
        rows,
        progress.open_errors,
        stopped_by,
        _waiting_text(status.waiting) if status.waiting is not None else None,
        status.backlog.read if status.backlog is not None else None,
        status.backlog.behind if status.backlog is not None else None,
    )


def _table(lake: Lake, status: TableStatus) -> tuple[TableState | None, str | None]:
    """Return the Iceberg table, if a batch was written, or why it cannot be read."""
    if status.reader is None:
        return None, None
    try:
        return lake.tables.table_state(status.full_name), None
    except DefinitionError as error:
        return None, f"{error.code}: {error.message}"


def _unfilled(full_name: str, columns: tuple[str, ...]) -> list[str]:
    return [f"{full_name}: {unfilled_detail(columns)}. {unfilled_hint(full_name)}"] if columns else []


def _waiting_text(waiting: Waiting) -> str:
    return f"{waiting.what} since {iso(waiting.since_ms)}: {waiting.detail}"
