"""Removes properties of tables, without Spark."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate

from lakehold.iceberg import attempts
from lakehold.iceberg.attempts import Attempt
from lakehold.iceberg.metadata_commits import by_file
from lakehold.iceberg.sql_catalog import RememberingSqlCatalog


def remove_property(catalog: Catalog, full_name: str, name: str) -> None:
    """Remove a property of a table, if the table has it.

    Raises:
        NoSuchTableError: The table does not exist.
        CommitConflict: Other writers committed first, at each attempt.
        UpstreamUnavailable: The catalog does not answer; the property may or may not have been removed.
    """

    def attempt(table: Table) -> Attempt[bool] | None:
        if name not in table.properties:
            return None
        if isinstance(catalog, RememberingSqlCatalog):
            kept = {key: value for key, value in table.properties.items() if key != name}
            return by_file(catalog, table, True, lambda before: {**before, "properties": kept})

        def commit() -> None:
            requirements = (AssertTableUUID(uuid=table.metadata.table_uuid),)
            catalog.commit_table(table, requirements, (RemovePropertiesUpdate(removals=[name]),))

        return Attempt(table, True, (), commit, is_in=lambda newest: name not in newest.properties)

    attempts.change(catalog, full_name, attempt)
