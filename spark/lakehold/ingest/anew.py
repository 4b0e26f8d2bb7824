"""A table that is created again begins with nothing: what is left of an earlier one of its name goes before it is filled."""

from __future__ import annotations

import logging

from lakehold.catalog.definitions import Entry
from lakehold.definitions import Table
from lakehold.ingest.apply import Writing
from lakehold.ingest.evolve import FULL_NAME, OBJECT_ID

log = logging.getLogger(__name__)


def clear(writing: Writing, entry: Entry[Table]) -> None:
    """Take the messages in error away, and an Iceberg table that a batch made after its definition was dropped, or a kill left.

    Its files stay until the new table's orphans are deleted. A table that another tool made, or renamed, is not touched.
    """
    name = entry.definition.full_name
    writing.errors.forget(name)
    state = writing.tables.table_state(name)
    if state is None or state.properties.get(FULL_NAME) != name:
        return
    if state.properties.get(OBJECT_ID) != entry.object_id:
        log.warning(
            "what was left of a dropped table %s goes, last described by %s", name, state.table.metadata_location
        )
        writing.tables.drop_table(name, purge=False)
