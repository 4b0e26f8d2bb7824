"""Recognizes how the changes of a query's result follow from the changes of its tables: query tree -> `Plan`.

Whatever is not known to be safe is computed whole. A plan only says what the text says: names of columns are resolved when the
query is opened on a lake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from lakehold.sql.aggregation_text import AGGREGATES, RECOMPUTED, NotSplit, aggregation
from lakehold.sql.cursor import Cursor
from lakehold.sql.dialect import StatementText
from lakehold.sql.query_tree import QueryTree
from lakehold.sql.row_by_row import unknown_call
from lakehold.subscribe.incremental_plan import ColumnName, Equality, Plan, RowQuery, Source, TouchedGroups, Whole
from lakehold.subscribe.statement import Query, TableReference

_CLAUSES = frozenset({"expressions", "from_", "joins", "where", "group", "having", "distinct"})
_OF_A_TABLE = frozenset({"this", "db", "catalog", "alias"})
_OF_A_JOIN = frozenset({"this", "side", "kind", "on", "using"})
_INNER = frozenset({"", "INNER", "CROSS"})
_OF_WINDOWS = frozenset(
    {"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value", "over"}
)
_SYNTAX = frozenset({"using", "by", "having", "all", "distinct"})
_QUALIFIED = 2
"""The parts of a column's name with the name of its table."""

_NAMES = {"with_": "WITH", "laterals": "LATERAL VIEW", "order": "ORDER BY", "sample": "TABLESAMPLE"}


class _NotIncremental(Exception):
    """A signal that the query has to be computed whole; its text is the reason."""


def incremental_plan(
    query: QueryTree, tables: Sequence[TableReference], parse: Callable[[StatementText], Query]
) -> Plan:
    """Plan how the changes of a query's result are found.

    Args:
        query: The query.
        tables: The tables that it reads.
        parse: Parses a query that this module writes.
    """
    try:
        return _plan(query, {table.start: table for table in tables}, parse)
    except (_NotIncremental, NotSplit) as reason:
        return Whole(str(reason))
    except RecursionError:
        return Whole("it is nested too deeply")


def _plan(query: QueryTree, tables: dict[int, TableReference], parse: Callable[[StatementText], Query]) -> Plan:
    selects = list(_selects(query.tree))
    others = _OF_WINDOWS | _SYNTAX
    if (name := unknown_call(query, others | AGGREGATES | RECOMPUTED)) is not None:
        raise _NotIncremental(f"lakehold does not know that {name} works row by row")
    if len(selects) > 1 and any(_has_star(item) for select in selects for item in select.expressions):
        raise _NotIncremental("a part of UNION ALL selects *")
    rows = _row_query(query, selects, tables)
    windows = _windows(query)
    aggregates = not windows and unknown_call(query, others) is not None
    if not (windows or aggregates or any(_groups(select) for select in selects)):
        return rows
    if len(selects) > 1:
        raise _NotIncremental("a part of UNION ALL aggregates")
    (select,) = selects
    if windows:
        if _groups(select):
            raise _NotIncremental("it has both a window and groups")
        return TouchedGroups(rows, _one_table(rows, _partition_columns(windows, rows.sources)))
    if _is_recomputed(query.tree):
        return TouchedGroups(rows, _one_table(rows, _group_columns(select, rows.sources)))
    return replace(aggregation(query, select, rows, parse), touched=_touched_groups(rows, select))


def _touched_groups(rows: RowQuery, select: exp.Select) -> TouchedGroups | None:
    """Return the groups as what rows of a table they depend on; None if they are not groups by columns of one table."""
    try:
        return TouchedGroups(rows, _one_table(rows, _group_columns(select, rows.sources)))
    except _NotIncremental:
        return None


def _groups(select: exp.Select) -> bool:
    return any(select.args.get(clause) for clause in ("group", "having", "distinct"))


def _has_star(item: exp.Expr) -> bool:
    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))


def _windows(query: QueryTree) -> list[exp.Window]:
    """Return the windows of a query, of which sqlglot must have found all."""
    found = list(query.tree.find_all(exp.Window))
    cursor = Cursor(query.written)
    count = 0
    while not cursor.at_end:
        count += cursor.word() == "OVER" and cursor.peek().start not in query.named
        cursor.advance()
    if count != len(found):
        raise _NotIncremental("lakehold cannot tell its windows apart")
    return found


def _is_recomputed(tree: exp.Expr) -> bool:
    """Return whether the query has an aggregate of which no state is kept."""
    has_distinct = any(isinstance(node.parent, exp.AggFunc) for node in tree.find_all(exp.Distinct))
    kinds = (exp.AnyValue, exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.Filter, exp.IgnoreNulls)
    return has_distinct or any(True for _ in tree.find_all(*kinds))


def _selects(tree: exp.Expr) -> Iterator[exp.Select]:
    """Yield the SELECTs of a UNION ALL, or the only one, in the order of the text."""
    if isinstance(tree, exp.Union):
        clauses = {name for name, value in tree.args.items() if value}
        if clauses != {"this", "expression"}:
            raise _NotIncremental("it is a UNION that removes duplicates, sorts or matches names")
        yield from _selects(tree.this)
        yield from _selects(tree.expression)
        return
    if not isinstance(tree, exp.Select):
        raise _NotIncremental("it is neither a SELECT nor a UNION ALL of SELECTs")
    clauses = {name for name, value in tree.args.items() if value}
    if more := sorted(clauses - _CLAUSES):
        raise _NotIncremental(f"it has {', '.join(_NAMES.get(name, name.strip('_').upper()) for name in more)}")
    if not {"expressions", "from_"} <= clauses:
        raise _NotIncremental("it has a SELECT without FROM")
    if any(node is not tree and isinstance(node, exp.Query | exp.QueryTransform) for node in tree.walk()):
        raise _NotIncremental("it has a subquery")
    if isinstance(distinct := tree.args.get("distinct"), exp.Distinct) and distinct.args.get("on"):
        raise _NotIncremental("it has DISTINCT ON")
    yield tree


def _row_query(query: QueryTree, selects: Sequence[exp.Select], tables: dict[int, TableReference]) -> RowQuery:
    sources: list[Source] = []
    equalities: list[Equality] = []
    for branch, select in enumerate(selects):
        first = len(sources)
        sources.append(_source(select.args["from_"].this, tables, branch))
        for join in select.args.get("joins") or ():
            sources.append(_joined(join, tables, branch))
            equalities += _compared(join, sources, first)
        if (where := select.args.get("where")) is not None:
            equalities += _equalities(where.this, sources, first)
    return RowQuery(query.written.text, tuple(sources), tuple(_select_lists(query)), tuple(equalities))


def _source(table: exp.Expr, tables: dict[int, TableReference], branch: int, *, is_optional: bool = False) -> Source:
    if not isinstance(table, exp.Table) or {name for name, value in table.args.items() if value} - _OF_A_TABLE:
        raise _NotIncremental("it reads something else than tables")
    reference = tables.get(table.parts[0].meta.get("start", -1))
    if reference is None or table.alias_column_names:
        raise _NotIncremental("it reads something else than tables")
    return Source(
        reference.full_name,
        reference.start,
        reference.end_exclusive,
        reference.implied_alias,
        table.alias or table.name,
        branch,
        is_optional,
    )


def _joined(join: exp.Join, tables: dict[int, TableReference], branch: int) -> Source:
    side, kind = (str(join.args.get(name) or "").upper() for name in ("side", "kind"))
    if {name for name, value in join.args.items() if value} - _OF_A_JOIN:
        raise _NotIncremental("it has a NATURAL or another special join")
    is_left = side == "LEFT" and kind in {"", "OUTER"}
    if not (is_left or (not side and kind in _INNER)):
        raise _NotIncremental(f"it has a {side or kind} JOIN")
    return _source(join.this, tables, branch, is_optional=is_left)


def _compared(join: exp.Join, sources: Sequence[Source], first: int) -> Iterator[Equality]:
    """Yield what a join compares, by ON or USING."""
    last = len(sources) - 1
    optional = last if sources[last].is_optional else None
    for identifier in join.args.get("using") or ():
        if last == first + 1:
            yield Equality(ColumnName(first, identifier.name), ColumnName(last, identifier.name), optional)
    if (on := join.args.get("on")) is not None:
        yield from (replace(found, optional=optional) for found in _equalities(on, sources, first))


def _equalities(condition: exp.Expr, sources: Sequence[Source], first: int) -> Iterator[Equality]:
    """Yield the equalities of columns among the conditions that AND combines."""
    for node in condition.flatten() if isinstance(condition, exp.And) else (condition,):
        while isinstance(node, exp.Paren):
            node = node.this  # noqa: PLW2901 - the same condition without its brackets
        if isinstance(node, exp.And):
            yield from _equalities(node, sources, first)
        elif isinstance(node, exp.EQ) and all(isinstance(side, exp.Column) for side in (node.this, node.expression)):
            left, right = (_column(side, sources, first) for side in (node.this, node.expression))
            if left is not None and right is not None:
                yield Equality(left, right)


def _column(column: exp.Column, sources: Sequence[Source], first: int) -> ColumnName | None:
    """Return the column of a table, or None if it may be something else, such as a field of a struct."""
    if len(column.parts) == 1:
        return ColumnName(None, column.name)
    names = [source.name.lower() for source in sources]
    qualifier = column.table.lower()
    if len(column.parts) == _QUALIFIED and names[first:].count(qualifier) == 1:
        return ColumnName(first + names[first:].index(qualifier), column.name)
    return None


def _select_lists(query: QueryTree) -> Iterator[int]:
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
        yield cursor.last.end + 1 - query.written.start


def _one_table(rows: RowQuery, columns: tuple[str, ...]) -> tuple[str, ...]:
    if len(rows.sources) > 1:
        raise _NotIncremental("it computes windows, or aggregates of which no state is kept, over a join")
    return columns


def _partition_columns(windows: Sequence[exp.Window], sources: Sequence[Source]) -> tuple[str, ...]:
    """Return the columns by which all windows partition."""
    found = []
    for window in windows:
        if window.args.get("alias"):
            raise _NotIncremental("it has a named window")
        columns = [_plain_name(node, sources) for node in window.args.get("partition_by") or ()]
        found.append({column.lower() for column in columns if column is not None})
    common = sorted(set.intersection(*found))
    if not common:
        raise _NotIncremental("its windows have no column of PARTITION BY in common")
    return tuple(common)


def _group_columns(select: exp.Select, sources: Sequence[Source]) -> tuple[str, ...]:
    """Return the columns by which the query groups, or of which it removes duplicates."""
    group = select.args.get("group")
    items = [item.unalias() for item in select.expressions]
    if group is None:
        keys = items if select.args.get("distinct") else []
    elif {name for name, value in group.args.items() if value} != {"expressions"}:
        raise _NotIncremental("it groups by ALL, ROLLUP, CUBE or GROUPING SETS")
    else:
        aliases = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
        keys = [_numbered(key, items) for key in group.expressions if key.name.lower() not in aliases]
    columns = tuple(dict.fromkeys(name for key in keys if (name := _plain_name(key, sources)) is not None))
    if not columns:
        raise _NotIncremental("it has an aggregate of which no state is kept, and groups by no plain column")
    return columns


def _numbered(key: exp.Expr, items: Sequence[exp.Expr]) -> exp.Expr:
    """Return the item of the select list that GROUP BY names by its number, or the key itself."""
    is_number = isinstance(key, exp.Literal) and not key.is_string and 0 < int(key.name) <= len(items)
    return items[int(key.name) - 1] if is_number else key


def _plain_name(node: exp.Expr, sources: Sequence[Source]) -> str | None:
    """Return the name of a column of a table; None for anything else, such as a field of a struct."""
    if not isinstance(node, exp.Column) or isinstance(node.parent, exp.Dot) or len(node.parts) > _QUALIFIED:
        return None
    tables = {source.name.lower() for source in sources}
    return str(node.name) if len(node.parts) == 1 or node.table.lower() in tables else None
