"""The ways in which a query uses columns of its tables: some changes of columns change rows, and no diff shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ColumnUses:
    """The part of a query's text that matters when columns of its tables change; `sql/column_reading.py` finds it.

    Attributes:
        needs_all: Whether its rows depend on which columns its tables have: it has a `*` inside an expression, a NATURAL JOIN, or
            DISTINCT over a `*` in a subquery.
        unqualified: Tables, and names that a new column of the table would take over: the query has these without a table.
        computed: Columns from which it computes values that depend on the column's type, in lowercase.
    """

    needs_all: bool = False
    unqualified: frozenset[tuple[str, str]] = frozenset()
    computed: frozenset[str] = frozenset()

    def computes_from(self, column: str) -> bool:
        """Return whether values depend on the type of a column."""
        return self.needs_all or column.lower() in self.computed
