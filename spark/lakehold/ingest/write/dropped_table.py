"""Removes what a killed DROP TABLE left of a table, or what a batch that ran beside the DROP created again."""

from __future__ import annotations

import logging

from lakehold.errors import LakeholdError
from lakehold.ingest.write.writing import Writing
from lakehold.model.summary_keys import OBJECT_ID

log = logging.getLogger(__name__)


def clear(writing: Writing, source: str, full_name: str, object_id: str) -> None:
    """Remove a dropped table's rows in the error table, and its Iceberg table if that still exists, or exists again.

    The next ingest calls it, before it removes the table from its reader. What it cannot remove is logged, and keeps no other
    table from being ingested.

    Args:
        writing: Writes to the lake.
        source: The source that fed the table.
        full_name: The table's name, which another table may have by now.
        object_id: Distinguishes the dropped table from another one of this name.
    """
    writing.errors.forget(source, {full_name})
    try:
        # One that cannot be read stays: by now it may be another table's.
        if writing.tables.table_state(full_name) is not None:
            writing.tables.drop_own(full_name, OBJECT_ID, object_id)
    except LakeholdError as error:
        log.warning("what is left of table %s stays: %s. %s", full_name, error.message, error.detail)
