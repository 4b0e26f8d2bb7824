"""Finds the tables that a query reads, also in subqueries in FROM, and which of their columns its joins compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from lakehold.sql.query.query_tree import QueryTree
from lakehold.sql.query.row_by_row import unknown_call
from lakehold.sql.query.subqueries import NotIncremental, apart, own_selects
from lakehold.sql.text.cursor import Cursor
from lakehold.subscribe.incremental_plan import ColumnName, Equality, RowQuery, SelectPart, Source
from lakehold.subscribe.statement import TableReference

_OF_A_TABLE = frozenset({"this", "db", "catalog", "alias"})
_OF_A_SUBQUERY = frozenset({"this", "alias"})
_OF_A_JOIN = frozenset({"this", "side", "kind", "on", "using"})
_INNER = frozenset({"", "INNER", "CROSS"})
_SYNTAX = frozenset({"using"})
_QUALIFIED = 2
"""The parts of a column's name with the name of its table."""


@dataclass
class Scope:
    """The names that one SELECT can use.

    Attributes:
        tree: The SELECT.
        number: Its number.
        relations: The relations of FROM by name in lowercase: the number of a table, a subquery that is one SELECT, or None for
            another subquery, whose columns are not followed to a table.
    """

    tree: exp.Select
    number: int
    relations: list[tuple[str, int | Scope | None]] = field(default_factory=list)
    _shared: dict[str, ColumnName | None] = field(default_factory=dict)

    def column(self, column: exp.Expr) -> ColumnName | None:
        """Return the column of a table that an expression is; None if it may be something else, such as a field of a struct."""
        if not isinstance(column, exp.Column) or isinstance(column.parent, exp.Dot) or len(column.parts) > _QUALIFIED:
            return None
        if isinstance(column.this, exp.Star):
            return None
        qualifier = column.table.lower()
        named = [relation for name, relation in self.relations if not qualifier or name == qualifier]
        if len(named) == 1:
            return _column_of(named[0], column.name)
        if not qualifier and all(isinstance(relation, int) for relation in named):
            return ColumnName(None, column.name, self.number)
        return None

    def left_of_using(self, name: str) -> ColumnName | None:
        """Return the column that USING compares with one of the last relation: the only one before it with this name.

        Columns that USING compared before are one, which is that of the first relation.
        """
        if name.lower() not in self._shared:
            *before, _ = (relation for _, relation in self.relations)
            found = _column_of(before[0], name) if len(before) == 1 else None
            tables = [relation for relation in before if isinstance(relation, int)]
            if len(before) > 1 and len(tables) == len(before):
                found = ColumnName(None, name, self.number, last=tables[-1])
            self._shared[name.lower()] = found
        return self._shared[name.lower()]

    def output(self, name: str) -> ColumnName | None:
        """Return the column of a table that the SELECT shows as `name`."""
        items = [item for item in self.tree.expressions if item.alias_or_name.lower() == name.lower()]
        if items:
            return self.column(items[0].unalias()) if len(items) == 1 else None
        stars = [item for item in self.tree.expressions if has_star(item)]
        if len(stars) != 1 or any(stars[0].find(exp.Star).args.values()):
            return None
        return self.column(exp.column(name, table=stars[0].args.get("table")))


def _column_of(relation: int | Scope | None, name: str) -> ColumnName | None:
    if isinstance(relation, int):
        return ColumnName(relation, name)
    return relation.output(name) if relation is not None else None


def has_star(item: exp.Expr) -> bool:
    """Return whether an item of a select list stands for several columns."""
    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))


@dataclass
class SourceReading:
    """Reads the tables of a query.

    Args:
        query: The query.
        tables: The tables that it reads, by their places in the text.

    Attributes:
        scopes: The names that the SELECTs of the query itself can use.
        stateful: Subqueries of which rows depend on several rows of a table, by the number of the source that stands for each.
    """

    query: QueryTree
    tables: Mapping[int, TableReference]
    scopes: list[Scope] = field(default_factory=list)
    stateful: dict[int, QueryTree] = field(default_factory=dict)
    _sources: list[Source] = field(default_factory=list)
    _selects: list[SelectPart] = field(default_factory=list)
    _equalities: list[Equality] = field(default_factory=list)
    _unions: int = 0
    _left_joins: int = 0

    def rows(self) -> RowQuery:
        """Return the query as one of rows: of its tables, and of the results of the subqueries that are `stateful`."""
        selects = list(own_selects(self.query.tree))
        self.scopes = self._read(self.query, selects, None, ())
        text = self.query.written.text
        return RowQuery(text, tuple(self._sources), tuple(self._selects), tuple(self._equalities))

    def _read(
        self, query: QueryTree, selects: Sequence[exp.Select], within: int | None, left_joins: tuple[int, ...]
    ) -> list[Scope]:
        own, subqueries = apart(query, selects)
        if len(selects) > 1 and any(has_star(item) for select in selects for item in select.expressions):
            raise NotIncremental("a part of UNION ALL selects *")
        if len(selects) > 1 and left_joins:
            raise NotIncremental("it has a UNION ALL at the right side of a LEFT JOIN")
        lists = list(_select_lists(own, self.query.written.start))
        if len(lists) < len(selects):
            raise NotIncremental("a part of it has no SELECT, as in FROM t")
        union, self._unions = self._unions, self._unions + 1
        scopes = []
        for select, at in zip(selects, lists, strict=True):
            scopes.append(Scope(select, len(self._selects)))
            self._selects.append(SelectPart(at, union, within))
        remaining = iter(subqueries)
        for scope in scopes:
            self._relation(scope, scope.tree.args["from_"].this, remaining, left_joins)
            for join in scope.tree.args.get("joins") or ():
                self._joined(scope, join, remaining, left_joins)
            if (where := scope.tree.args.get("where")) is not None:
                self._equalities += _equalities(where.this, scope, None)
        return scopes

    def _relation(
        self, scope: Scope, tree: exp.Expr, subqueries: Iterator[QueryTree], left_joins: tuple[int, ...]
    ) -> None:
        """Add a relation of FROM to a scope."""
        args = {name for name, value in tree.args.items() if value}
        if isinstance(tree, exp.Subquery) and args <= _OF_A_SUBQUERY and not tree.alias_column_names:
            scope.relations.append((tree.alias.lower(), self._subquery(next(subqueries), scope, left_joins)))
            return
        reference = None
        if isinstance(tree, exp.Table) and args <= _OF_A_TABLE and not tree.alias_column_names:
            reference = self.tables.get(tree.parts[0].meta.get("start", -1))
        if reference is None:
            raise NotIncremental("it reads something else than tables and subqueries without names of columns")
        name = tree.alias or tree.name
        self._sources.append(
            Source(
                reference.full_name,
                reference.start,
                reference.end_exclusive,
                reference.implied_alias,
                name,
                scope.number,
                left_joins,
            )
        )
        scope.relations.append((name.lower(), len(self._sources) - 1))

    def _subquery(self, query: QueryTree, scope: Scope, left_joins: tuple[int, ...]) -> Scope | None:
        selects = list(own_selects(query.tree))
        own, _ = apart(query, selects)
        if not any(is_grouped(select) for select in selects) and unknown_call(own, _SYNTAX) is None:
            scopes = self._read(query, selects, scope.number, left_joins)
            return scopes[0] if len(scopes) == 1 else None
        self.stateful[len(self._sources)] = query
        origin = self.query.written.start
        start, end = query.written.start - origin, query.written.end_exclusive - origin
        self._sources.append(Source("", start, end, "", "", scope.number, left_joins))
        return None

    def _joined(
        self, scope: Scope, join: exp.Join, subqueries: Iterator[QueryTree], left_joins: tuple[int, ...]
    ) -> None:
        side, kind = (str(join.args.get(name) or "").upper() for name in ("side", "kind"))
        if {name for name, value in join.args.items() if value} - _OF_A_JOIN:
            raise NotIncremental("it has a NATURAL or another special join")
        is_left = side == "LEFT" and kind in {"", "OUTER"}
        if not (is_left or (not side and kind in _INNER)):
            raise NotIncremental(f"it has a {f'{side} {kind}'.strip()} JOIN")
        number: int | None = None
        if is_left:
            number, self._left_joins = self._left_joins, self._left_joins + 1
        self._relation(scope, join.this, subqueries, left_joins if number is None else (*left_joins, number))
        for identifier in join.args.get("using") or ():
            right = _column_of(scope.relations[-1][1], identifier.name)
            self._equalities += _equality(scope.left_of_using(identifier.name), right, number)
        if (on := join.args.get("on")) is not None:
            self._equalities += _equalities(on, scope, number)


def is_grouped(select: exp.Select) -> bool:
    """Return whether a SELECT has a clause that groups rows."""
    return any(select.args.get(clause) for clause in ("group", "having", "distinct"))


def _equalities(condition: exp.Expr, scope: Scope, left_join: int | None) -> Iterator[Equality]:
    """Yield the equalities of columns among the conditions that AND combines."""
    for node in condition.flatten() if isinstance(condition, exp.And) else (condition,):
        while isinstance(node, exp.Paren):
            node = node.this  # noqa: PLW2901 - the same condition without its brackets
        if isinstance(node, exp.And):
            yield from _equalities(node, scope, left_join)
        elif isinstance(node, exp.EQ):
            yield from _equality(scope.column(node.this), scope.column(node.expression), left_join)


def _equality(left: ColumnName | None, right: ColumnName | None, left_join: int | None) -> Iterator[Equality]:
    if left is not None and right is not None:
        yield Equality(left, right, left_join)


def _select_lists(query: QueryTree, origin: int) -> Iterator[int]:
    """Yield the offset after each SELECT that is not inside brackets, with its hints and ALL or DISTINCT."""
    cursor = Cursor(query.written)
    depth = 0
    while not cursor.at_end:
        text = cursor.source_text(cursor.peek())
        depth += {"(": 1, ")": -1}.get(text, 0)
        is_name = cursor.peek().start in query.named
        cursor.advance()
        if depth or is_name or text.upper() != "SELECT":
            continue
        while cursor.source_text(cursor.peek()).startswith("/*+"):
            cursor.advance()
        if not cursor.accept("ALL"):
            cursor.accept("DISTINCT")
        yield cursor.last.end + 1 - origin
