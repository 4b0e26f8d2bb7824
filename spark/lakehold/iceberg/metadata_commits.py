"""Commits metadata files that lakehold writes itself, because PyIceberg does not write metadata of format version 3."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.properties import property_as_bool, property_as_int

from lakehold.iceberg import metadata_files
from lakehold.iceberg.attempts import Attempt
from lakehold.iceberg.deletion import delete_or_log, later
from lakehold.iceberg.metadata_files import MetadataJson
from lakehold.iceberg.sql_catalog import RememberingSqlCatalog

T = TypeVar("T")


def by_file(
    catalog: RememberingSqlCatalog, table: Table, result: T, changed: Callable[[MetadataJson], MetadataJson]
) -> Attempt[T]:
    """Write the next metadata file, and return its commit: it points the catalog to the file unless the table has changed.

    Args:
        catalog: The lake's catalog.
        table: The table.
        result: The result of the change.
        changed: Returns the metadata with the change. It gets those of the new file, with its log, without snapshots.
    """
    before = catalog.file_of(table.name(), table.metadata_location)
    after = before.followed_by(changed(_next(before.fields, before.location)))
    metadata_files.write(table.io, after)
    deletes = property_as_bool(
        table.properties,
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED,
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED_DEFAULT,
    )

    def commit() -> None:
        catalog.replace(table, after)
        if deletes:
            later(partial(delete_or_log, table.io, sorted(_logged(before.metadata) - _logged(after.metadata))))

    return Attempt(
        table,
        result,
        (after.location,),
        commit,
        is_in=lambda newest: after.location in {newest.metadata_location, *_logged(newest.metadata)},
    )


def _logged(metadata: TableMetadata) -> set[str]:
    return {entry.metadata_file for entry in metadata.metadata_log}


def _next(fields: MetadataJson, location: str) -> MetadataJson:
    """Return metadata for the file after the one at `location`, which has `fields`: with a new metadata log.

    The time stays that of the table's newest snapshot. If this clock is ahead of Spark's, its time would prevent Spark's next
    commit: Iceberg accepts no time that is more than a minute before the table's.
    """
    logged = {"metadata-file": location, "timestamp-ms": fields["last-updated-ms"]}
    kept = property_as_int(
        fields.get("properties", {}),
        TableProperties.METADATA_PREVIOUS_VERSIONS_MAX,
        TableProperties.METADATA_PREVIOUS_VERSIONS_MAX_DEFAULT,
    )
    return {
        **fields,
        "metadata-log": [*fields.get("metadata-log", ()), logged][-max(1, kept or 1) :],
    }
