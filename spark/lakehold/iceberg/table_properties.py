"""Sets and removes properties of tables, without Spark."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate, SetPropertiesUpdate

from lakehold.iceberg import attempts
from lakehold.iceberg.attempts import Attempt
from lakehold.iceberg.metadata_commits import by_file
from lakehold.iceberg.sql_catalog import RememberingSqlCatalog


def set_property(catalog: Catalog, full_name: str, name: str, value: str | None) -> None:
    """Set a property of a table; None removes it. Without a difference nothing is committed.

    Raises:
        DefinitionError: The table does not exist, or cannot be read.
        CommitConflict: Other writers committed first, at each attempt.
        UpstreamUnavailable: The catalog does not answer; the property may or may not have been changed.
    """

    def attempt(table: Table) -> Attempt[bool] | None:
        if table.properties.get(name) == value:
            return None
        if isinstance(catalog, RememberingSqlCatalog):
            others = {key: other for key, other in table.properties.items() if key != name}
            kept = others if value is None else {**others, name: value}
            return by_file(catalog, table, True, lambda before: {**before, "properties": kept})

        def commit() -> None:
            update = (
                RemovePropertiesUpdate(removals=[name]) if value is None else SetPropertiesUpdate(updates={name: value})
            )
            catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (update,))

        return Attempt(table, True, (), commit, is_in=lambda newest: newest.properties.get(name) == value)

    attempts.change(catalog, full_name, attempt)
