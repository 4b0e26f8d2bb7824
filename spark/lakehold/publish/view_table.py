"""The table of a materialized view: each timestamp of its query's output is merged into it, and published as one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import partial

import pyarrow as pa
from pyiceberg.catalog import Catalog

from lakehold.definitions import MaterializedView
from lakehold.errors import DefinitionError
from lakehold.iceberg.data_tables import SINCE_PROPERTY, SOURCE_PROPERTY, TableState
from lakehold.ingest.decode.types import ColumnType
from lakehold.ingest.decode.unify import same
from lakehold.ingest.envelope.stored_key import stored_columns
from lakehold.ingest.write.vectorized import OF_THIS_PROCESS
from lakehold.publish.merged_table import Merge, MergedTable, MergeWriting, column_types
from lakehold.publish.view_changes import Appended, Changes, KeyedChanges, RowChanges
from lakehold.session import row_by_row


class ViewTable(MergedTable):
    """The table of one materialized view.

    Args:
        view: The view.
        object_id: Its object id.
        writing: Writes to the table.
    """

    owner_property = SOURCE_PROPERTY
    hint = "Give the view another name, or drop the table."

    def __init__(self, catalog: Catalog, view: MaterializedView, object_id: str, writing: MergeWriting) -> None:
        super().__init__(catalog, view.full_name, object_id, view.key, writing)

    def prepare(self, columns: pa.Schema) -> None:
        """Create the table with the `columns` of the query's result, or check that it has them.

        Raises:
            DefinitionError: A table cannot have the columns, or the query has other columns than before.
        """
        wanted = _column_types(self.full_name, columns)
        state = self._writing.tables.table_state(self.full_name)
        if state is None:
            self._create(wanted)
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

    def remove_rows_before(self, before_ms: int) -> bool:
        """Raise an error: a view has no RETAIN OUTPUT."""
        raise NotImplementedError

    def _changes(self, state: TableState, summary: Mapping[str, str], merge: Merge) -> Changes:
        spark, columns = self._writing.spark(), stored_columns(state)
        reading = nullcontext if OF_THIS_PROCESS.take(state) else partial(row_by_row, spark)
        kind = Appended if merge.after is None else KeyedChanges if self._key else RowChanges
        return kind(
            spark=spark,
            full_name=self.full_name,
            name=self._name,
            columns=columns,
            key=self._spelt_key(columns),
            summary=summary,
            reading=reading,
        )

    def _properties(self, merge: Merge) -> Mapping[str, str]:
        return {SINCE_PROPERTY: str(merge.timestamp_ms)} if merge.after is None else {}


def _column_types(full_name: str, columns: pa.Schema) -> tuple[ColumnType, ...]:
    try:
        return column_types(columns)
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
