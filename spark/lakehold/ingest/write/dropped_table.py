"""Removes a dropped table completely: first what a kill, or a batch in progress, left of it, then its reader."""

from __future__ import annotations

import logging

from lakehold.ingest.write.evolve import OBJECT_ID
from lakehold.ingest.write.writing import Writing

log = logging.getLogger(__name__)


def clear(writing: Writing, source: str, full_name: str, object_id: str) -> None:
    """Remove a dropped table's messages in error, and its Iceberg table if that still exists, or exists again.

    Args:
        writing: Writes to the lake.
        source: The source that fed it.
        full_name: The name, which another table may have by now.
        object_id: Distinguishes it from that one, and from a table that was renamed to this name.
    """
    writing.errors.forget(source, full_name)
    state = writing.tables.table_state(full_name)
    if state is not None and state.properties.get(OBJECT_ID) == object_id:
        log.info("dropping what was left of table %s", full_name)
        writing.tables.drop_table(full_name)
