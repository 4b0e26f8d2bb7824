"""The table of a materialized view: each timestamp of its query's output is merged into it, and published as one snapshot.

The statements of a timestamp commit to a branch, chunk by chunk, so that an output of any size fits in memory. One small commit
then makes the branch the table's state, and records the position with it. A killed refresh leaves a branch that nobody reads;
the next refresh removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from lakehold.definitions import MaterializedView
from lakehold.errors import DefinitionError, LakeholdError
from lakehold.holds.tags import TableTags
from lakehold.iceberg.data_tables import (
    POSITION_PROPERTY,
    SINCE_PROPERTY,
    SOURCE_PROPERTY,
    TIMESTAMP_PROPERTY,
    DataTables,
    TableState,
)
from lakehold.ingest.decode.types import ColumnType, from_spark
from lakehold.ingest.decode.unify import same
from lakehold.ingest.envelope.stored_key import KEY, key_text, stored_columns
from lakehold.ingest.write import evolve
from lakehold.ingest.write.vectorized import OF_THIS_PROCESS
from lakehold.ingest.write.write_audit_publish import Publishing
from lakehold.publish.derived_table import EPOCH_PROPERTY, PUBLISHER_PROPERTY, DerivedTable, Published
from lakehold.publish.view_changes import Appended, Changes, KeyedChanges, RowChanges
from lakehold.session import row_by_row
from lakehold.spark_sql import quoted_table
from lakehold.subscribe.spark_types import spark_type


@dataclass(frozen=True)
class ViewWriting:
    """The means to write the tables of a lake's views.

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


class ViewTable(DerivedTable):
    """The table of one materialized view.

    Args:
        view: The view.
        object_id: Its object id.
        writing: Writes to the table.
    """

    owner_property = SOURCE_PROPERTY
    hint = "Give the view another name, or drop the table."

    def __init__(self, catalog: Catalog, view: MaterializedView, object_id: str, writing: ViewWriting) -> None:
        super().__init__(catalog, view.full_name, object_id)
        self._key = view.key
        self._writing = writing
        self._name = quoted_table(writing.catalog_name, self.full_name)

    def published(self, table: Table | None = None) -> Published | None:
        """Return how far the view is refreshed; None if it never was."""
        table = table or self.table()
        if table is None or POSITION_PROPERTY not in table.properties:
            return None
        found = table.properties
        return Published(int(found[POSITION_PROPERTY]), int(found[EPOCH_PROPERTY]), found[PUBLISHER_PROPERTY])

    def prepare(self, columns: pa.Schema) -> None:
        """Create the table with the `columns` of the query's result, or check that it has them.

        Raises:
            DefinitionError: A table cannot have the columns, or the query has other columns than before.
        """
        wanted = _column_types(self.full_name, columns)
        state = self._writing.tables.table_state(self.full_name)
        if state is None:
            spark = self._writing.spark()
            properties = {SOURCE_PROPERTY: self._object_id, KEY: key_text(self._spelt_key(wanted))}
            key = self._spelt_key(wanted)
            statements = evolve.create_statements(self._name, key, wanted, self._writing.buckets, properties)
            namespace = self._name.rsplit(".", 1)[0]
            evolve.run(spark, self._writing.tables, self.full_name, evolve.Evolution(statements, wanted, namespace))
            return
        stored = stored_columns(state)
        if [c.name for c in stored] != [c.name for c in wanted] or not all(
            same(one.type, other.type) for one, other in zip(stored, wanted, strict=True)
        ):
            raise DefinitionError(
                f'the query of materialized view "{self.full_name}" has other columns than its table',
                code="view-columns",
                detail=f"The table has {_listed(stored)}; the query now has {_listed(wanted)}: a table that it reads changed.",
                hint=f"SHOW CREATE MATERIALIZED VIEW {self.full_name}, then DROP it and create it again; name its columns "
                "instead of *, and CAST them, so that new and wider columns do not change them.",
            )

    def refresh(
        self,
        timestamp_ms: int,
        chunks: Iterable[pa.Table],
        after: Published | None,
        becomes: Published,
        confirm: Callable[[], None],
    ) -> int:
        """Merge the output of one timestamp into the table, and return the table's snapshot afterwards.

        Args:
            timestamp_ms: The timestamp.
            chunks: The output; `prepare` was called with its columns.
            after: The progress that the commit continues from.
            becomes: The progress that it records.
            confirm: Raises `LeaseLost` if another process has the lease.

        Raises:
            LeaseLost: Another publisher has published more, or has taken over.
            CommitConflict: Another writer changed the table meanwhile; nothing was published.
            LakeholdError: A key is not unique.
        """
        writing = self._writing
        state = self._state()
        self.check_continues(state.table, after, becomes.epoch)
        summary = {SOURCE_PROPERTY: self._object_id, TIMESTAMP_PROPERTY: str(timestamp_ms)}
        changes = self._changes(state, summary, is_first=after is None)
        if state.snapshot_id is None:
            # A branch begins at a snapshot: this one has no rows.
            changes.begin()
            state = self._state()
        properties = {
            POSITION_PROPERTY: str(becomes.position_ms),
            EPOCH_PROPERTY: str(becomes.epoch),
            PUBLISHER_PROPERTY: becomes.publisher,
            **({SINCE_PROPERTY: str(timestamp_ms)} if after is None else {}),
        }
        publishing = Publishing(writing.spark(), writing.tables, confirm, writing.tags.is_held)
        return publishing.run_together(_writes(changes, chunks), state, properties).snapshot_id

    def _state(self) -> TableState:
        state = self._writing.tables.table_state(self.full_name)
        if state is None:
            raise LakeholdError(
                f'table "{self.full_name}" was dropped while it was written',
                code="table-missing",
                hint="Refresh again.",
            )
        return state

    def _changes(self, state: TableState, summary: dict[str, str], *, is_first: bool) -> Changes:
        spark, columns = self._writing.spark(), stored_columns(state)
        reading = nullcontext if OF_THIS_PROCESS.take(state) else partial(row_by_row, spark)
        kind = Appended if is_first else KeyedChanges if self._key else RowChanges
        return kind(
            spark=spark,
            full_name=self.full_name,
            name=self._name,
            columns=columns,
            key=self._spelt_key(columns),
            summary=summary,
            reading=reading,
        )

    def _spelt_key(self, columns: Iterable[ColumnType]) -> tuple[str, ...]:
        """Return the key's columns as the table spells them."""
        spelt = {column.name.lower(): column.name for column in columns}
        exact = set(spelt.values())
        return tuple(name if name in exact else spelt[name.lower()] for name in self._key)


def _writes(changes: Changes, chunks: Iterable[pa.Table]) -> Iterator[Callable[[], None]]:
    for chunk in chunks:
        if chunk.num_rows:
            yield from changes.writes(chunk)


def _column_types(full_name: str, columns: pa.Schema) -> tuple[ColumnType, ...]:
    names = [name.lower() for name in columns.names]
    repeated = sorted({name for name in names if names.count(name) > 1})
    try:
        if repeated:
            raise TypeError(f"More than one column is called {', '.join(repeated)}")
        return tuple(ColumnType(field.name, from_spark(spark_type(field.type))) for field in columns)
    except TypeError as error:
        raise DefinitionError(
            f'materialized view "{full_name}" cannot have the columns of its query',
            code="view-columns",
            detail=f"{error}.",
            hint="Name columns with AS, and CAST them to types that a table can have.",
        ) from None


def check_columns(full_name: str, columns: pa.Schema) -> None:
    """Check that a table can have `columns`, those of the query of the view `full_name`.

    Raises:
        DefinitionError: It cannot.
    """
    _column_types(full_name, columns)


def _listed(columns: Iterable[ColumnType]) -> str:
    return ", ".join(f"{column.name} {column.spark_type}" for column in columns)
