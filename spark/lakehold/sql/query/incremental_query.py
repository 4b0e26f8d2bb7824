"""Recognizes how the changes of a query's result follow from the changes of its tables: query tree -> `Plan`.

Whatever is not known to be safe is computed whole. A plan only says what the text says: names of columns are resolved when the
query is opened on a lake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from lakehold.errors import StatementError
from lakehold.sql.query.aggregation_text import AGGREGATES, RECOMPUTED, NotSplit, aggregation, rows_read
from lakehold.sql.query.common_tables import without_with
from lakehold.sql.query.group_key import numbered_place
from lakehold.sql.query.query_sources import Scope, SourceReading, is_grouped
from lakehold.sql.query.query_tree import QueryTree
from lakehold.sql.query.row_by_row import has_inner_star, unknown_call
from lakehold.sql.query.subqueries import NotIncremental, apart, own_nodes, own_selects
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.dialect import StatementText, split
from lakehold.subscribe.incremental_plan import Aggregation, Around, Plan, RowQuery, TouchedGroups, Whole
from lakehold.subscribe.statement import Query, TableReference

_OF_WINDOWS = frozenset(
    {"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value", "over"}
)
_SYNTAX = frozenset({"using", "by", "having", "all", "distinct"})

_Parse = Callable[[StatementText], Query]


def incremental_plan(query: QueryTree, tables: Sequence[TableReference], parse: _Parse) -> Plan:
    """Plan how the changes of a query's result are found.

    Args:
        query: The query.
        tables: The tables that it reads.
        parse: Parses a query that this module writes.
    """
    try:
        if query.tree.args.get("with_"):
            return _parsed(without_with(query), query, parse).plan
        return _plan(query, SourceReading(query, {table.start: table for table in tables}), parse)
    except (NotIncremental, NotSplit) as reason:
        return Whole(str(reason))
    except StatementError:
        return Whole("lakehold cannot tell its parts apart")
    except RecursionError:
        return Whole("it is nested too deeply")


def _parsed(text: str, query: QueryTree, parse: _Parse) -> Query:
    """Parse a text that is made of parts of `query`."""
    (statement,) = split(text, query.written.catalog)
    return parse(statement)


def _plan(query: QueryTree, reading: SourceReading, parse: _Parse) -> Plan:
    selects = list(own_selects(query.tree))
    if has_inner_star(query.tree):
        raise NotIncremental("it has a * inside an expression")
    own, _ = apart(query, selects)
    others = _OF_WINDOWS | _SYNTAX
    if (name := unknown_call(own, others | AGGREGATES | RECOMPUTED)) is not None:
        raise NotIncremental(f"lakehold does not know that {name} works row by row")
    rows = reading.rows()
    windows = _windows(own)
    aggregates = not windows and unknown_call(own, others) is not None
    if not (windows or aggregates or any(is_grouped(select) for select in selects)):
        return _around(rows, reading, parse) if reading.stateful else rows
    if len(selects) > 1:
        raise NotIncremental("a part of UNION ALL aggregates or computes windows")
    (select,), (scope,) = selects, reading.scopes
    if windows:
        if is_grouped(select):
            raise NotIncremental("it has both a window and groups")
        return _touched(query, rows, scope, _partition_columns(windows, scope), parse)
    if select.args.get("distinct") and (aggregates or select.args.get("group") or select.args.get("having")):
        # Equal rows of several groups become one, so a row does not follow from the rows of one group.
        raise NotIncremental("it has DISTINCT over groups")
    if _is_recomputed(query.tree):
        return _touched(query, rows, scope, _group_columns(select, scope), parse)
    found = aggregation(query, select, [name for name, _ in scope.relations], parse)
    _refuse_alias_of_subquery(found, select)
    try:
        return replace(found, touched=_touched(query, rows, scope, _group_columns(select, scope), parse))
    except NotIncremental:
        return found


def _around(rows: RowQuery, reading: SourceReading, parse: _Parse) -> Plan:
    """Plan a query that reads the result of one subquery row by row."""
    if len(rows.sources) > 1:
        raise NotIncremental("it joins the result of a subquery that groups rows or computes windows, or adds to it")
    subquery = parse(reading.stateful[0].written)
    match subquery.plan:
        case Aggregation(around=None, touched=touched) as plan:
            within = None if touched is None else replace(touched, query=touched.query.inside(rows))
            return replace(plan, touched=within, around=Around(rows, subquery))
        case TouchedGroups() as plan:
            return replace(plan, query=plan.query.inside(rows))
        case Whole(reason):
            raise NotIncremental(reason)
        case _:
            raise NotIncremental("lakehold cannot tell its subqueries apart")


def _touched(
    query: QueryTree, rows: RowQuery, scope: Scope, columns: Sequence[exp.Column], parse: _Parse
) -> TouchedGroups:
    """Plan a query whose result rows each depend on the rows with the same values of some columns."""
    if any(not source.full_name for source in rows.sources):
        raise NotIncremental("it computes windows, or aggregates of which no state is kept, over groups or windows")
    found = {scope.column(column): query.written.text[slice(*_place(column))] for column in columns}
    listed = ", ".join(f"{text} AS k{place}" for place, text in enumerate(found.values()))
    keys = _parsed(f"SELECT {listed} {rows_read(query)}", query, parse)
    return TouchedGroups(rows, tuple(name for name in found if name is not None), keys)


def _place(column: exp.Column) -> tuple[int, int]:
    """Return where a column is in the text of its query."""
    return column.parts[0].meta["start"], column.parts[-1].meta["end"] + 1


def _refuse_alias_of_subquery(found: Aggregation, select: exp.Select) -> None:
    """Refuse a name in GROUP BY that may be a column of a subquery, or an item of the select list."""
    for inner in select.find_all(exp.Select) if found.aliases else ():
        for item in inner.expressions if inner is not select else ():
            name = item.alias_or_name.lower()
            if name in found.aliases or not (name or isinstance(item, exp.Star)):
                raise NotIncremental("a name in GROUP BY may be a column of a subquery or an item of the select list")


def _windows(query: QueryTree) -> list[exp.Window]:
    """Return the windows of a query, of which sqlglot must have found all."""
    found = [node for node in own_nodes(query.tree) if isinstance(node, exp.Window)]
    cursor = Cursor(query.written)
    count = 0
    while not cursor.at_end:
        count += cursor.word() == "OVER" and cursor.peek().start not in query.named
        cursor.advance()
    if count != len(found):
        raise NotIncremental("lakehold cannot tell its windows apart")
    return found


def _is_recomputed(tree: exp.Expr) -> bool:
    """Return whether the query has an aggregate of which no state is kept."""
    kinds = (exp.AnyValue, exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.Filter, exp.IgnoreNulls)
    return any(
        isinstance(node, kinds) or (isinstance(node, exp.Distinct) and isinstance(node.parent, exp.AggFunc))
        for node in own_nodes(tree)
    )


def _partition_columns(windows: Sequence[exp.Window], scope: Scope) -> list[exp.Column]:
    """Return the columns by which all windows partition."""
    found: list[dict[object, exp.Column]] = []
    for window in windows:
        if window.args.get("alias"):
            raise NotIncremental("it has a named window")
        found.append({scope.column(node): node for node in _known(window.args.get("partition_by") or (), scope)})
    common = [node for column, node in found[0].items() if all(column in others for others in found)]
    if not common:
        raise NotIncremental("its windows have no column of PARTITION BY in common")
    return common


def _group_columns(select: exp.Select, scope: Scope) -> list[exp.Column]:
    """Return the columns by which the query groups, or of which it removes duplicates."""
    group = select.args.get("group")
    items = [item.unalias() for item in select.expressions]
    if group is None:
        keys = items if select.args.get("distinct") else []
    elif {name for name, value in group.args.items() if value} != {"expressions"}:
        raise NotIncremental("it groups by ALL, ROLLUP, CUBE or GROUPING SETS")
    else:
        aliases = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
        keys = [_numbered(key, items) for key in group.expressions if key.name.lower() not in aliases]
    columns = list(_known(keys, scope))
    if not columns:
        raise NotIncremental("it has an aggregate of which no state is kept, and groups by no plain column")
    return columns


def _numbered(key: exp.Expr, items: Sequence[exp.Expr]) -> exp.Expr:
    """Return the item of the select list that GROUP BY names by its number, or the key itself."""
    place = numbered_place(key, items)
    return key if place is None else items[place]


def _known(nodes: Sequence[exp.Expr], scope: Scope) -> Iterator[exp.Column]:
    """Yield those of `nodes` that are columns of tables."""
    for node in nodes:
        if isinstance(node, exp.Column) and scope.column(node) is not None and "start" in node.parts[0].meta:
            yield node
