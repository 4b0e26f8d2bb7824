"""Values of rows that Debezium does not send unchanged. Data classes only."""

from __future__ import annotations

from dataclasses import dataclass

from lakehold.upstream.found_columns import FoundColumn
from lakehold.upstream.sent_types import Loss


@dataclass(frozen=True)
class LossyColumn:
    """A column whose type has values that Debezium does not send unchanged.

    Attributes:
        column: The column.
        loss: Some of these values.
    """

    column: FoundColumn
    loss: Loss

    @property
    def stops(self) -> bool:
        """Return whether the connector fails at such a value."""
        return self.loss.is_null and not self.column.is_nullable


@dataclass(frozen=True)
class LostValues:
    """The columns of a table whose rows hold values that Debezium does not send unchanged.

    Attributes:
        columns: The columns that hold such values, or that may hold some when the query was not answered.
        query: The query that finds such rows, if the database did not answer it in time; else empty.
    """

    columns: tuple[LossyColumn, ...]
    query: str = ""
