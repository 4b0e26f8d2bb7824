"""A table that lakehold writes from the output of a SUBSCRIBE: the output table of a subscription, or the table of a view.

Its metadata records how far it is complete, so that every timestamp is published exactly once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table

from lakehold.errors import DefinitionError, LeaseLost
from lakehold.iceberg.attempts import NO_SUCH_TABLE, read
from lakehold.iceberg.dropped_tables import drop_own
from lakehold.subscribe.query_columns import QUERY_COLUMNS, QueryColumns, from_text


@dataclass(frozen=True)
class Published:
    """The progress recorded in a table.

    Attributes:
        position_ms: All output below it (exclusive) is in the table.
        epoch: The publisher's epoch at that commit, see `EPOCH_PROPERTY`.
        publisher: The process that committed it.
    """

    position_ms: int
    epoch: int
    publisher: str


class DerivedTable(ABC):
    """The table of one subscription or view.

    Args:
        catalog: The lake's catalog.
        full_name: The table's full name; the table need not exist yet.
        object_id: Object id of the subscription or view.

    Attributes:
        owner_property: The table property that names the subscription or view.
        hint: What to do if the table belongs to something else.
    """

    owner_property: str
    hint: str

    def __init__(self, catalog: Catalog, full_name: str, object_id: str) -> None:
        self._catalog = catalog
        self.full_name = full_name
        self._object_id = object_id

    def table(self) -> Table | None:
        """Load the table; None if it does not exist.

        Raises:
            DefinitionError: The table belongs to something else, or cannot be read.
        """
        try:
            table = read(self._catalog, self.full_name, lambda found: found)
        except NO_SUCH_TABLE:
            return None
        if table.properties.get(self.owner_property) != self._object_id:
            raise DefinitionError(
                f'table "{self.full_name}" already exists',
                code="output-exists",
                detail="It was made by something else.",
                hint=self.hint,
            )
        return table

    def drop(self) -> None:
        """Drop the table with its files; does nothing if it does not exist, or belongs to something else.

        A table of this name whose metadata is gone or damaged is dropped as well: nothing else would ever remove it.
        """
        drop_own(self._catalog, self.full_name, self.owner_property, self._object_id)

    def columns_read(self) -> QueryColumns:
        """Return the columns that its rows come from; none before the first commit, or if an earlier lakehold made the last."""
        table = self.table()
        return from_text(table.properties.get(QUERY_COLUMNS) if table is not None else None)

    @abstractmethod
    def published(self, table: Table | None = None) -> Published | None:
        """Return how far the table is complete; None if nothing has been published."""

    def check_continues(self, table: Table, expected: Published | None, epoch: int) -> None:
        """Check that the table ends where a commit continues, and that no later publisher has taken over.

        Raises:
            LeaseLost: Another publisher has published more, or has taken over.
        """
        found = self.published(table)
        newer = found is not None and found.epoch > epoch
        if newer or (found.position_ms if found else None) != (expected.position_ms if expected else None):
            who = f'"{found.publisher}" has published up to {found.position_ms}' if found else "the output was emptied"
            raise LeaseLost(
                f'another publisher writes "{self.full_name}"',
                detail=f"Expected it to end at {expected.position_ms if expected else 'nothing'}; {who}.",
                hint="Nothing was published twice. Run it again when the other one has finished.",
            )


class OutputOfSubscription(DerivedTable, ABC):
    """The table of a subscription. It keeps old rows only as long as RETAIN OUTPUT says; a view always has all rows."""

    @abstractmethod
    def remove_rows_before(self, before_ms: int, confirm: Callable[[], None]) -> bool:
        """Remove rows that RETAIN OUTPUT no longer keeps; return false if a concurrent commit prevented it.

        Args:
            before_ms: The first time that is kept.
            confirm: Raises `LeaseLost` if another process has the lease.
        """

    def _has(self, row_filter: str | BooleanExpression) -> bool:
        """Return whether a file of the table may have rows to which a filter applies; false if the table does not exist."""
        if self.table() is None:
            return False
        try:
            return read(
                self._catalog, self.full_name, lambda found: any(found.scan(row_filter=row_filter).plan_files())
            )
        except NO_SUCH_TABLE:
            return False
