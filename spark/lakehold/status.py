"""How every table is, from the lake's metadata alone."""

from __future__ import annotations

from typing import Any

from lakehold.catalog.readers import MAIN_READER, ReaderState
from lakehold.lake import Lake
from lakehold.sql.result import Result
from lakehold.times import iso

COLUMNS = ("table", "source", "state", "since", "upper", "rows", "open_errors", "stopped_by")


def status_of(lake: Lake) -> Result:
    """One row a table: readable on `[since, upper)`, live rows, open errors, and what stopped it.

    `state` is `live` with its source, `catching-up` behind it, `stopped` by an error, or `new` before its first batch.
    """
    defined = lake.definitions.definitions()
    readers = {name: state for state in lake.batches.all_readers() for name in state.tables}
    rows = []
    for name, entry in sorted(defined.tables.items()):
        state = readers.get(name)
        if state is not None and state.tables[name].object_id != entry.object_id:
            state = None
        rows.append(_row(lake, name, entry.definition.source, state))
    return Result(COLUMNS, rows)


def _row(lake: Lake, name: str, source: str, state: ReaderState | None) -> tuple[Any, ...]:
    if state is None:
        return (name, source, "new", None, None, None, 0, None)
    progress = state.tables[name]
    table = lake.tables.table_state(name)
    if state.error is not None:
        condition = "stopped"
    elif state.reader == MAIN_READER:
        condition = "live" if state.upper_ms is not None else "new"
    else:
        condition = "catching-up"
    return (
        name,
        source,
        condition,
        iso(progress.since_ms) if progress.since_ms is not None else None,
        iso(state.upper_ms) if state.upper_ms is not None else None,
        table.row_count if table is not None else 0,
        progress.open_errors,
        f"{state.error.code}: {state.error.message}" if state.error is not None else None,
    )
