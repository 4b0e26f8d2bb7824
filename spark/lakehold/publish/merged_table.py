"""A table that output is merged into: a materialized view's, or a subscription's with ENVELOPE HISTORY.

The statements of one commit run on a branch, chunk by chunk, so that an output of any size fits in memory. One small commit
then makes the branch the table's state, and records the position with it. A killed publisher leaves a branch that nobody reads;
the next commit removes it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakehold.errors import LakeholdError
from lakehold.holds.tags import TableTags
from lakehold.iceberg.data_tables import POSITION_PROPERTY, TIMESTAMP_PROPERTY, DataTables, TableState
from lakehold.ingest.decode.types import ColumnType, from_spark
from lakehold.ingest.envelope.stored_key import KEY, key_text
from lakehold.ingest.write import evolve
from lakehold.ingest.write.write_audit_publish import Publishing
from lakehold.publish.derived_table import EPOCH_PROPERTY, PUBLISHER_PROPERTY, DerivedTable, Published
from lakehold.publish.view_changes import Changes
from lakehold.spark_sql import quoted_table
from lakehold.subscribe.spark_types import spark_type


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


@dataclass(frozen=True)
class Merge:
    """The content of one commit.

    Attributes:
        timestamp_ms: The last timestamp of the output.
        chunks: The output; `prepare` was called with its columns.
        after: The progress that the commit continues from; None if nothing has been published.
        becomes: The progress that it records.
        restarted_at_ms: Time of a new snapshot with which the output begins, after a lapse; None for other commits.
    """

    timestamp_ms: int
    chunks: Iterable[pa.Table]
    after: Published | None
    becomes: Published
    restarted_at_ms: int | None = None


class MergedTable(DerivedTable):
    """The table of one view, or the history of one subscription.

    Args:
        catalog: The lake's catalog.
        full_name: The table's full name; the table need not exist yet.
        object_id: Object id of the view or subscription.
        key: The columns that tell its rows apart at each time, as the statement spells them; empty without a key.
        writing: Writes to the table.

    Attributes:
        commit_rows: Number of rows up to which one commit takes several timestamps. 0: each timestamp is one commit.
    """

    commit_rows: ClassVar[int] = 0

    def __init__(
        self, catalog: Catalog, full_name: str, object_id: str, key: Sequence[str], writing: MergeWriting
    ) -> None:
        super().__init__(catalog, full_name, object_id)
        self._key = tuple(key)
        self._writing = writing
        self._name = quoted_table(writing.catalog_name, self.full_name)

    def published(self, table: Table | None = None) -> Published | None:
        """Return how far the table is complete; None if nothing has been published."""
        table = table or self.table()
        if table is None or POSITION_PROPERTY not in table.properties:
            return None
        found = table.properties
        return Published(int(found[POSITION_PROPERTY]), int(found[EPOCH_PROPERTY]), found[PUBLISHER_PROPERTY])

    @abstractmethod
    def prepare(self, columns: pa.Schema) -> None:
        """Make the table fit the `columns` of what the SUBSCRIBE reads, creating it if necessary.

        Raises:
            DefinitionError: A table cannot have the columns.
        """

    def merge(self, merge: Merge, confirm: Callable[[], None]) -> int:
        """Merge output into the table, and return the table's snapshot afterwards.

        Args:
            merge: The content of the commit.
            confirm: Raises `LeaseLost` if another process has the lease.

        Raises:
            LeaseLost: Another publisher has published more, or has taken over.
            CommitConflict: Another writer changed the table meanwhile; nothing was published.
            LakeholdError: A key is not unique.
        """
        writing = self._writing
        state = self._state()
        self.check_continues(state.table, merge.after, merge.becomes.epoch)
        summary = {self.owner_property: self._object_id, TIMESTAMP_PROPERTY: str(merge.timestamp_ms)}
        changes = self._changes(state, summary, merge)
        if state.snapshot_id is None:
            # A branch begins at a snapshot: this one has no rows.
            changes.begin()
            state = self._state()
        properties = {
            POSITION_PROPERTY: str(merge.becomes.position_ms),
            EPOCH_PROPERTY: str(merge.becomes.epoch),
            PUBLISHER_PROPERTY: merge.becomes.publisher,
            **self._properties(merge),
        }
        publishing = Publishing(writing.spark(), writing.tables, confirm, writing.tags.is_held)
        return publishing.run_together(changes.statements(merge.chunks), state, properties).snapshot_id

    @abstractmethod
    def _changes(self, state: TableState, summary: Mapping[str, str], merge: Merge) -> Changes:
        """Choose how the output of `merge` is brought into the table."""

    @abstractmethod
    def _properties(self, merge: Merge) -> Mapping[str, str]:
        """Return properties of the table that `merge` sets beside those of its progress."""

    def _create(self, columns: Sequence[ColumnType]) -> None:
        """Create the table with a namespace for it."""
        key = self._spelt_key(columns)
        properties = {self.owner_property: self._object_id, KEY: key_text(key)}
        statements = evolve.create_statements(self._name, key, columns, self._writing.buckets, properties)
        made = evolve.Evolution(statements, tuple(columns), self._name.rsplit(".", 1)[0])
        evolve.run(self._writing.spark(), self._writing.tables, self.full_name, made)

    def _state(self) -> TableState:
        state = self._writing.tables.table_state(self.full_name)
        if state is None:
            raise LakeholdError(
                f'table "{self.full_name}" was dropped while it was written',
                code="table-missing",
                hint="Publish again.",
            )
        return state

    def _spelt_key(self, columns: Iterable[ColumnType]) -> tuple[str, ...]:
        """Return the key's columns as the table spells them."""
        spelt = {column.name.lower(): column.name for column in columns}
        exact = set(spelt.values())
        return tuple(name if name in exact else spelt[name.lower()] for name in self._key)


def column_types(columns: pa.Schema) -> tuple[ColumnType, ...]:
    """Return the columns of a table for `columns`.

    Raises:
        TypeError: A table cannot have them; the text is a sentence without its full stop.
    """
    names = [name.lower() for name in columns.names]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise TypeError(f"More than one column is called {', '.join(repeated)}")
    return tuple(ColumnType(field.name, from_spark(spark_type(field.type))) for field in columns)
