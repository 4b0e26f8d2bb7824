"""Plans of queries: how the changes of a result follow from the changes of the query's tables, as plain values.

`sql/incremental_query.py` makes them from a query's text. docs/internals/incremental.md has the algebra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehold.spark_sql import quoted

if TYPE_CHECKING:
    from lakehold.subscribe.statement import Query


@dataclass(frozen=True)
class Whole:
    """The result is computed at both ends of each timestamp and subtracted.

    Attributes:
        reason: Why; it completes the sentence "the query is computed whole because …".
    """

    reason: str


@dataclass(frozen=True)
class Source:
    """A table at the place where a query reads it.

    Attributes:
        full_name: `namespace.table`, without the catalog.
        start: Zero-based offset of its first character in the query's text.
        end_exclusive: Offset after its last character, without the alias.
        implied_alias: The alias that a relation in its place needs; empty if the query has one.
        name: The name by which the query's columns refer to it.
        branch: The number of its SELECT in a UNION ALL; 0 without one.
        is_optional: Whether it is the right side of a LEFT JOIN.
    """

    full_name: str
    start: int
    end_exclusive: int
    implied_alias: str
    name: str
    branch: int = 0
    is_optional: bool = False


@dataclass(frozen=True)
class ColumnName:
    """A column as a query writes it.

    Attributes:
        source: The place of its table among the plan's sources; None if the query does not say.
        name: The column's name.
    """

    source: int | None
    name: str


@dataclass(frozen=True)
class Equality:
    """Columns of two tables that are equal in every pair of rows that a join combines.

    Attributes:
        left: A column.
        right: The other one.
        optional: The right side of the LEFT JOIN whose ON compares them; None for other joins and WHERE. Rows of other tables
            stay in the result although they are not equal.
    """

    left: ColumnName
    right: ColumnName
    optional: int | None = None


@dataclass(frozen=True)
class RowQuery:
    """A UNION ALL of SELECTs that filter, compute and join rows, or one of them.

    Attributes:
        text: The query as written.
        sources: The tables, in the order of the text.
        select_lists: For each SELECT, the offset at which its select list begins.
        equalities: What its joins compare.
    """

    text: str
    sources: tuple[Source, ...]
    select_lists: tuple[int, ...]
    equalities: tuple[Equality, ...] = ()

    def over(self, relations: Sequence[str], columns: Sequence[str]) -> str:
        """Rewrite the text to read other relations.

        Args:
            relations: SQL of a relation for each source.
            columns: SQL for each SELECT, inserted before its select list; empty, or ends with a comma.
        """
        parts = [
            (at, at, f" {inserted}" if inserted else "")
            for at, inserted in zip(self.select_lists, columns, strict=True)
        ]
        for source, relation in zip(self.sources, relations, strict=True):
            alias = f" AS {quoted(source.implied_alias)}" if source.implied_alias else ""
            parts.append((source.start, source.end_exclusive, relation + alias))
        text = self.text
        for start, end_exclusive, replacement in sorted(parts, reverse=True):
            text = text[:start] + replacement + text[end_exclusive:]
        return text


@dataclass(frozen=True)
class TouchedGroups:
    """A query over one table of which each result row depends on the rows with the same values of some columns.

    Attributes:
        query: The query.
        columns: Names of these columns of the table: those of GROUP BY, or of PARTITION BY.
    """

    query: RowQuery
    columns: tuple[str, ...]


@dataclass(frozen=True)
class AggregateCall:
    """A call of an aggregate function.

    Attributes:
        function: Its name in lowercase.
        argument: The number of its argument among the plan's arguments; None for `count(*)`.
    """

    function: str
    argument: int | None


@dataclass(frozen=True)
class Aggregation:
    """A query that groups rows and aggregates them.

    Attributes:
        rows: Gives the keys `k0, k1, …` and the arguments `a0, a1, …` of each row, before grouping.
        keys: The keys as the query writes them.
        calls: The aggregates `g0, g1, …`.
        items: The select list as SQL over the keys `k0, …` and the aggregates `g0, …`.
        having: The condition of HAVING as SQL over the same; empty without one.
        aliases: Names that GROUP BY takes from the select list: no table may have a column with such a name.
        has_one_group: Whether there is no GROUP BY, so that the result has a row even without any rows.
        touched: The rows on which a group depends, for queries of which no state can be kept; None if these are not known.
    """

    rows: Query
    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    items: tuple[str, ...]
    having: str
    aliases: tuple[str, ...]
    has_one_group: bool
    touched: TouchedGroups | None = None

    @property
    def arguments(self) -> int:
        """Return the number of arguments."""
        return len({call.argument for call in self.calls if call.argument is not None})


Plan = Whole | RowQuery | TouchedGroups | Aggregation
