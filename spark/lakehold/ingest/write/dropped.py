"""A dropped table leaves nothing behind: what a kill, or a batch that was under way, left of it goes before its reader does."""

from __future__ import annotations

import logging

from lakehold.ingest.write.evolve import OBJECT_ID
from lakehold.ingest.write.writing import Writing

log = logging.getLogger(__name__)


def clear(writing: Writing, source: str, full_name: str, object_id: str) -> None:
    """Take away a dropped table's messages in error, and its Iceberg table if that is there still, or again.

    Args:
        writing: Where they are.
        source: What fed it.
        full_name: The name, which another table may have by now.
        object_id: Tells it from that one, and from a table that somebody renamed.
    """
    writing.errors.forget(source, full_name)
    state = writing.tables.table_state(full_name)
    if state is not None and state.properties.get(OBJECT_ID) == object_id:
        log.info("dropping what was left of table %s", full_name)
        writing.tables.drop_table(full_name)
