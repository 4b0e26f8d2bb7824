"""Commits a step of a batch: whatever the outcome of an attempt was, the table's history shows whether it contains the step."""

from __future__ import annotations

import logging
from collections.abc import Callable

from lakehold.errors import LakeholdError
from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.ingest.write.batch_effects import BatchIdentity, effect_of

log = logging.getLogger(__name__)

_ATTEMPTS = 5


def committed(  # noqa: PLR0913 - a table, a step of a batch, and how it is made
    tables: DataTables,
    confirm_lease: Callable[[], None],
    batch: BatchIdentity,
    full_name: str,
    step: int,
    commit: Callable[[TableState], None],
) -> TableState | None:
    """Run `commit` until the table's history has this batch's step. Returns the committed table; None if nothing was to do.

    A conflict (another tool compacted, for example) and a commit whose answer got lost look alike here: the table's history
    decides both. A writer whose lease was lost never makes a second attempt.

    Args:
        tables: Reads the table's metadata.
        confirm_lease: Raises `LeaseLost` if another process owns the source.
        batch: The batch.
        full_name: The table.
        step: Number of the commit among those of the batch to this table (`batch_effects.py`).
        commit: Writes the step to the table in the state that it is given.
    """
    for attempt in range(_ATTEMPTS):
        state = tables.table_state(full_name)
        if state is None:
            raise LakeholdError(
                f'table "{full_name}" was dropped while it was written',
                code="table-missing",
                hint="Ingest again: that creates the table if it had no rows, or says what to do.",
            )
        if effect_of(state, batch, step) is not None:
            return state
        confirm_lease()
        before = state.snapshot_id
        try:
            commit(state)
        # Each kind of session raises its own classes; only the history shows whether one of them means "not committed".
        except Exception as error:
            now = tables.table_state(full_name)
            if now is not None and effect_of(now, batch, step) is not None:
                return now
            moved = now is None or now.snapshot_id != before
            if not moved or attempt == _ATTEMPTS - 1:
                raise
            log.info("another writer changed %s first, retrying: %s", full_name, str(error).split("\n", 1)[0])
        else:
            now = tables.table_state(full_name)
            return now if now is None or now.snapshot_id != before else None
    return None
