"""Adds columns with an initial default: the value of rows in files older than the column (Iceberg spec, "Default values").

Spark SQL cannot write an initial default, so lakehold commits the new schema itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
)
from pyiceberg.types import NestedField

from lakehold.iceberg import attempts
from lakehold.iceberg.attempts import Attempt
from lakehold.iceberg.metadata_commits import by_file
from lakehold.iceberg.metadata_files import MetadataJson
from lakehold.iceberg.sql_catalog import RememberingSqlCatalog

FORMAT_VERSION = 3
"""The first format version whose columns have initial defaults."""


def add_columns(catalog: Catalog, full_name: str, columns: Sequence[NestedField]) -> None:
    """Add optional columns with primitive types. Columns whose name the table already has are skipped.

    Args:
        catalog: The lake's catalog.
        full_name: Full name of a table of format version 3.
        columns: The columns; their ids are assigned here.

    Raises:
        DefinitionError: The table does not exist, or cannot be read.
        CommitConflict: Other writers committed first, at each attempt.
        UpstreamUnavailable: The catalog does not answer; the columns may or may not have been added.
    """

    def attempt(table: Table) -> Attempt[bool] | None:
        present = {field.name for field in table.schema().fields}
        new = [column for column in columns if column.name not in present]
        first = table.metadata.last_column_id + 1
        fields = [column.model_copy(update={"field_id": id_}) for id_, column in enumerate(new, first)]
        if not fields:
            return None
        if isinstance(catalog, RememberingSqlCatalog):
            return by_file(catalog, table, True, lambda before: with_columns(before, fields))
        return _by_catalog(catalog, table, fields)

    attempts.change(catalog, full_name, attempt)


def with_columns(fields: MetadataJson, columns: Sequence[NestedField]) -> MetadataJson:
    """Return metadata with a new current schema: that of `fields`, followed by the columns."""
    current = next(schema for schema in fields["schemas"] if schema["schema-id"] == fields["current-schema-id"])
    schema_id = 1 + max(schema["schema-id"] for schema in fields["schemas"])
    added = [column.model_dump(mode="json", by_alias=True) for column in columns]
    return {
        **fields,
        "schemas": [*fields["schemas"], {**current, "schema-id": schema_id, "fields": [*current["fields"], *added]}],
        "current-schema-id": schema_id,
        "last-column-id": max(column.field_id for column in columns),
    }


def _by_catalog(catalog: Catalog, table: Table, columns: Sequence[NestedField]) -> Attempt[bool]:
    schema, metadata = table.schema(), table.metadata
    after = Schema(*schema.fields, *columns, identifier_field_ids=schema.identifier_field_ids)
    names = {column.name for column in columns}

    def commit() -> None:
        catalog.commit_table(
            table,
            (AssertTableUUID(uuid=metadata.table_uuid), AssertCurrentSchemaId(current_schema_id=schema.schema_id)),
            (AddSchemaUpdate(schema_=after), SetCurrentSchemaUpdate(schema_id=-1)),
        )

    return Attempt(
        table, True, (), commit, is_in=lambda newest: names <= {field.name for field in newest.schema().fields}
    )
