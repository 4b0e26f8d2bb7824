"""Values of rows that Debezium does not send as they are. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from lakehold.upstream.found_columns import FoundColumn
from lakehold.upstream.sent_types import Loss


@dataclass(frozen=True)
class LossyColumn:
    """A column whose type has values that do not come as they are.

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
    """The values of a table's rows that do not come as they are.

    Attributes:
        columns: The columns that hold such values, or that may hold some if nobody knows.
        query: The query that knows, where it was not answered in time; empty where it was.
    """

    columns: tuple[LossyColumn, ...]
    query: str = ""
