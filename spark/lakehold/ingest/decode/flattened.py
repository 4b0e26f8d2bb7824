"""Debezium's flattened events: rows that its transformation `ExtractNewRecordState` takes out of change events.

With `delete.tombstone.handling.mode=rewrite` a deleted row is sent as well, and each row has a text `__deleted` that says whether
it is one. The other fields that the transformation may add (`__op`, `__lsn`, …) are columns like those of the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lakehold.ingest.decode.connect_schema import ConnectSchema, Field, SchemaType
from lakehold.ingest.decode.debezium import NOT_DEBEZIUM
from lakehold.ingest.decode.message_parts import Part, Refused
from lakehold.ingest.decode.structures import Structure
from lakehold.spark_sql import quoted

DELETED = "__deleted"
"""The field of a row that says `true` if the row was deleted, else `false`."""

_WAYS = (
    "Set delete.tombstone.handling.mode=rewrite in the connector; or, if deletes are tombstones, use ENVELOPE UPSERT."
)
_NO_FIELD = f'The row has no field "{DELETED}", which says whether it was deleted. {_WAYS}'
_EVENT = f'The value has no field "{DELETED}": it is a whole change event. Use ENVELOPE DEBEZIUM or DEBEZIUM UPSERT.'


def only_flattened(value: Part) -> Part:
    """Return the part without versions whose rows do not say whether they were deleted; their records are refused."""
    without = [version for version in value.versions if version.schema.field_named(DELETED) is None]
    refused = (Refused(version.matches, NOT_DEBEZIUM, _why(version.schema)) for version in without)
    versions = tuple(version for version in value.versions if version not in without)
    return replace(value, versions=versions, refused=(*value.refused, *refused))


def _why(schema: ConnectSchema) -> str:
    is_event = all(schema.field_named(name) is not None for name in ("after", "op", "source"))
    return _EVENT if is_event else _NO_FIELD


def with_deleted(row: ConnectSchema) -> ConnectSchema:
    """Return the schema of declared rows with the field that says whether they were deleted."""
    if row.field_named(DELETED) is not None:
        return row
    return replace(row, fields=(*row.fields, Field(DELETED, ConnectSchema(SchemaType.STRING, optional=True))))


def without_deleted(row: Structure) -> Structure:
    """Return the structure without the column that says whether a row was deleted."""
    return replace(row, columns=tuple(column for column in row.columns if column.name != DELETED))


def is_deleted(value: Part) -> str:
    """Write the condition that a row was deleted."""
    texts = (f"CAST({version.row}.{quoted(DELETED)} AS STRING) = 'true'" for version in value.versions)
    return f"coalesce({', '.join([*texts, 'false'])})"


def problems(value: Part) -> Iterator[tuple[str, str]]:
    """Yield (condition, detail): the condition that a row does not say whether it was deleted, despite a valid schema."""
    for version in value.versions:
        yield f"({version.row} IS NOT NULL AND {version.row}.{quoted(DELETED)} IS NULL)", _NO_FIELD
