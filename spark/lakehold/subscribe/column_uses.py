"""The ways in which a query uses columns of its tables: some changes of columns change rows, and no diff shows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IcebergType,
    IntegerType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from lakehold.errors import DefinitionError

_TEMPORAL = (DateType, TimestampNanoType, TimestampType, TimestamptzNanoType, TimestamptzType)


@dataclass(frozen=True)
class ColumnUses:
    """The part of a query's text that matters when columns of its tables change; `sql/column_reading.py` finds it.

    Attributes:
        needs_all: Whether its rows depend on which columns its tables have: it has a `*` inside an expression, a NATURAL JOIN, or
            DISTINCT over a `*` in a subquery.
        unqualified: Tables, and names that a new column of the table would take over: the query has these without a table.
        computed: Columns from which it computes values that depend on the column's type, in lowercase.
        computed_whole: Those from which it does so even if they are whole numbers.
        beside_clock: Columns that it compares with text such as 'today', in lowercase.
    """

    needs_all: bool = False
    unqualified: frozenset[tuple[str, str]] = frozenset()
    computed: frozenset[str] = frozenset()
    computed_whole: frozenset[str] = frozenset()
    beside_clock: frozenset[str] = frozenset()

    def computes_from(self, column: str, of: IcebergType) -> bool:
        """Return whether values depend on whether a column has the type `of` or a wider one."""
        return self.needs_all or column.lower() in (
            self.computed_whole if isinstance(of, IntegerType) else self.computed
        )

    def refuse_clock(self, schemas: Iterable[Schema]) -> None:
        """Refuse to compare a date or a timestamp with text such as 'today': Spark casts the text, and reads the clock for it.

        Raises:
            DefinitionError: A column that is compared with such a text has such a type.
        """
        for schema in schemas:
            for column in schema.fields:
                if column.name.lower() in self.beside_clock and isinstance(column.field_type, _TEMPORAL):
                    raise DefinitionError(
                        f"the text that {column.name} is compared with depends on the clock",
                        code="query-clock",
                        detail=f"{column.name} is a {column.field_type}, so Spark reads today, now and so on as times. A query "
                        "whose changes are read must give the same rows each time.",
                        hint="Write a time, or filter what the subscription gives.",
                    )
