"""A table that output is merged into: a materialized view's, or a subscription's with ENVELOPE HISTORY.

The statements of one commit run on a branch, chunk by chunk, so that an output of any size fits in memory. One small commit
then makes the branch the table's state, and records the position with it. A killed publisher leaves a branch that nobody reads;
the next commit removes it.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakehold.errors import LakeholdError
from lakehold.holds.tags import TableTags
from lakehold.iceberg.data_tables import DataTables, TableState
from lakehold.model.summary_keys import EPOCH_PROPERTY, POSITION_PROPERTY, PUBLISHER_PROPERTY
from lakehold.publish.derived_table import DerivedTable, Published
from lakehold.publish.output_columns import stored_names
from lakehold.publish.view_changes import Changes
from lakehold.spark_sql import quoted_table
from lakehold.tables.column_types import ColumnType
from lakehold.tables.evolution import Evolution, Evolving
from lakehold.tables.write_audit_publish import Publishing


@dataclass(frozen=True)
class MergeWriting:
    """The means to write the tables of a lake that output is merged into.

    Args:
        spark: Returns the session.
        catalog_name: Spark's name of the lake's catalog.
        tables: Reads the tables' metadata, and moves their branches.
        tags: Shows which tables are held.
        buckets: The number of buckets of a new table with a key.
    """

    spark: Callable[[], SparkSession]
    catalog_name: str
    tables: DataTables
    tags: TableTags
    buckets: int


class MergedTable(DerivedTable, ABC):
    """The table of one view, or the history of one subscription.

    Args:
        catalog: The lake's catalog.
        full_name: The table's full name; the table need not exist yet.
        object_id: Object id of the view or subscription.
        writing: Writes to the table.
    """

    def __init__(self, catalog: Catalog, full_name: str, object_id: str, writing: MergeWriting) -> None:
        super().__init__(catalog, full_name, object_id)
        self._writing = writing
        self._name = quoted_table(writing.catalog_name, self.full_name)

    def published(self, table: Table | None = None) -> Published | None:
        """Return how far the table is complete; None if nothing has been published."""
        table = table or self.table()
        if table is None or POSITION_PROPERTY not in table.properties:
            return None
        found = table.properties
        return Published(int(found[POSITION_PROPERTY]), int(found[EPOCH_PROPERTY]), found[PUBLISHER_PROPERTY])

    def _evolve(self, plan: Callable[[TableState | None], Evolution], confirm: Callable[[], None]) -> None:
        """Create the table, or change its columns: see `Evolving.evolve`."""
        tables = self._writing.tables
        Evolving(self._writing.spark, tables, self.full_name, confirm).evolve(tables.table_state(self.full_name), plan)

    def _run_together(
        self,
        writes: Iterable[Callable[[], None]],
        properties: dict[str, str],
        becomes: Published,
        changes: Changes,
        confirm: Callable[[], None],
    ) -> int:
        """Run statements, publish them as one commit, and return the table's snapshot afterwards.

        Args:
            writes: The statements. They may add to `properties`.
            properties: Properties of the table that the commit sets.
            becomes: The progress that it records.
            changes: Gives a table without a snapshot its first one.
            confirm: Raises `LeaseLost` if another process has the lease.
        """
        state = self._state()
        if state.snapshot_id is None:
            # A branch begins at a snapshot: this one has no rows.
            changes.begin()
            state = self._state()
        properties |= {
            POSITION_PROPERTY: str(becomes.position_ms),
            EPOCH_PROPERTY: str(becomes.epoch),
            PUBLISHER_PROPERTY: becomes.publisher,
        }
        return self._publishing(confirm).run_together(writes, state, properties).snapshot_id

    def _publishing(self, confirm: Callable[[], None]) -> Publishing:
        writing = self._writing
        return Publishing(writing.spark(), writing.tables, confirm, writing.tags.is_held)

    def _state(self) -> TableState:
        state = self._writing.tables.table_state(self.full_name)
        if state is None:
            raise LakeholdError(
                f'table "{self.full_name}" was dropped while it was written',
                code="table-missing",
                hint="Publish again.",
            )
        return state


def spelt(key: Iterable[str], columns: Iterable[ColumnType]) -> tuple[str, ...]:
    """Return the columns of a key as a table with `columns` spells them."""
    return tuple(stored_names(key, (column.name for column in columns)))
