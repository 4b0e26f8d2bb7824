"""Values of rows that Debezium does not send unchanged. Data classes only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString

from lakehold.upstream.found.columns import FoundColumn


@dataclass(frozen=True)
class Loss:
    """Values of a type that Debezium does not send unchanged, with a query for the rows that hold some.

    Attributes:
        what: The values and what becomes of them: a clause without a full stop.
        where: The SQL condition of rows that hold such values; `{0}` is the column.
        is_null: Debezium sends them as null, and fails in a column that takes no nulls.
    """

    what: str
    where: LiteralString
    is_null: bool = False

    @property
    def text(self) -> str:
        """Return what is lost, and what a column without nulls does to the connector."""
        return f"{self.what}, and where the column is NOT NULL the connector fails" if self.is_null else self.what


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
