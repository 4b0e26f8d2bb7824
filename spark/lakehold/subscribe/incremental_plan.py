"""Plans of queries: how the changes of a result follow from the changes of the query's tables, as plain values.

`sql/incremental_query.py` makes them from a query's text. docs/internals/incremental.md has the algebra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakehold.spark_sql import quoted, spliced

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
class SelectPart:
    """A SELECT inside a query: the query itself, a part of a UNION ALL, or a subquery in FROM.

    Attributes:
        list_at: Zero-based offset at which its select list begins.
        union: The number of the UNION ALL that it is a part of; a SELECT that is no part of one has a number of its own.
        within: The number of the SELECT whose FROM has it; None for the query itself.
    """

    list_at: int
    union: int = 0
    within: int | None = None


@dataclass(frozen=True)
class Source:
    """A table at the place where a query reads it, or a subquery that is read as one.

    Attributes:
        full_name: `namespace.table`, without the catalog; empty for a subquery.
        start: Zero-based offset of its first character in the query's text.
        end_exclusive: Offset after its last character, without the alias.
        implied_alias: The alias that a relation in its place needs; empty if the query has one.
        name: The name by which the query's columns refer to it.
        select: The number of the SELECT whose FROM has it.
        left_joins: The numbers of the LEFT JOINs at whose right side it is.
    """

    full_name: str
    start: int
    end_exclusive: int
    implied_alias: str
    name: str
    select: int = 0
    left_joins: tuple[int, ...] = ()

    @property
    def is_optional(self) -> bool:
        """Return whether rows of other tables may stay in the result without a row of it."""
        return bool(self.left_joins)


@dataclass(frozen=True)
class ColumnName:
    """A column as a query writes it.

    Attributes:
        source: The place of its table among the plan's sources; None if the query does not say.
        name: The column's name.
        select: The number of the SELECT whose FROM has its table, if `source` is None.
        last: The place of the last source that may be its table, if `source` is None; None for all of the FROM.
    """

    source: int | None
    name: str
    select: int = 0
    last: int | None = None


@dataclass(frozen=True)
class Equality:
    """Columns of two tables that are equal in every pair of rows that a join combines.

    Attributes:
        left: A column.
        right: The other one.
        left_join: The number of the LEFT JOIN whose ON compares them; None for other joins and WHERE. Rows of other tables
            stay in the result although they are not equal.
    """

    left: ColumnName
    right: ColumnName
    left_join: int | None = None


@dataclass(frozen=True)
class RowQuery:
    """A query that filters, computes and joins rows, and adds them with UNION ALL; its subqueries do the same.

    Attributes:
        text: The query as written.
        sources: The tables, in the order of the text.
        selects: Its SELECTs; a subquery comes after the SELECT whose FROM has it.
        equalities: What its joins compare.
    """

    text: str
    sources: tuple[Source, ...]
    selects: tuple[SelectPart, ...]
    equalities: tuple[Equality, ...] = ()

    def over(self, relations: Sequence[str], columns: Sequence[str] = ()) -> str:
        """Rewrite the text to read other relations.

        Args:
            relations: SQL of a relation for each source.
            columns: SQL for each SELECT, inserted before its select list; empty, or ends with a comma.
        """
        parts = [
            (select.list_at, select.list_at, f" {inserted}" if inserted else "")
            for select, inserted in zip(self.selects, columns, strict=False)
        ]
        for source, relation in zip(self.sources, relations, strict=True):
            alias = f" AS {quoted(source.implied_alias)}" if source.implied_alias else ""
            parts.append((source.start, source.end_exclusive, relation + alias))
        return spliced(self.text, parts)

    def path(self, place: int) -> tuple[int, ...]:
        """Return the numbers of the SELECTs through which the rows of a source pass, the query itself last."""
        found: list[int] = []
        select: int | None = self.sources[place].select
        while select is not None:
            found.append(select)
            select = self.selects[select].within
        return tuple(found)

    def are_added(self, place: int, other: int) -> bool:
        """Return whether two sources are in different parts of a UNION ALL, so that no row needs both."""
        parts = {self.selects[select].union: select for select in self.path(place)}
        return any(parts.get(self.selects[select].union, select) != select for select in self.path(other))

    def inside(self, query: RowQuery) -> RowQuery:
        """Return the whole of a query that has this one as its only source, as a query of this one's tables."""
        (place,) = query.sources
        text = query.text[: place.start] + self.text + query.text[place.end_exclusive :]
        moved = (
            replace(source, start=source.start + place.start, end_exclusive=source.end_exclusive + place.start)
            for source in self.sources
        )
        return replace(self, text=text, sources=tuple(moved), selects=())


@dataclass(frozen=True)
class TouchedGroups:
    """A query of which each result row depends on the joined rows with the same values of some columns.

    Attributes:
        query: The query; its text also groups rows or computes windows.
        columns: These columns: those of GROUP BY, or of PARTITION BY.
        keys: Gives these columns of each joined row.
    """

    query: RowQuery
    columns: tuple[ColumnName, ...]
    keys: Query


@dataclass(frozen=True)
class Around:
    """A query that reads the result of a subquery row by row.

    Attributes:
        query: The query; its only source is the subquery.
        subquery: The subquery.
    """

    query: RowQuery
    subquery: Query


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
        around: What is computed from the groups, if they are a subquery.
    """

    rows: Query
    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    items: tuple[str, ...]
    having: str
    aliases: tuple[str, ...]
    has_one_group: bool
    touched: TouchedGroups | None = None
    around: Around | None = None

    @property
    def arguments(self) -> int:
        """Return the number of arguments."""
        return len({call.argument for call in self.calls if call.argument is not None})


Plan = Whole | RowQuery | TouchedGroups | Aggregation
