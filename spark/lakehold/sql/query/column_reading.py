"""Finds in a query's tree how it uses columns: which names stand alone, and from which columns it computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from lakehold.sql.query.repeatable import OF_TODAY
from lakehold.sql.query.row_by_row import has_inner_star
from lakehold.subscribe.column_uses import ColumnUses

_COMPARISONS = (
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.In,
    exp.Between,
    exp.Is,
    exp.Count,
    exp.CountIf,
)
"""Expressions whose result is the same for equal numbers of any type."""

_TAKING = (
    exp.Alias,
    exp.Paren,
    exp.Sum,
    exp.Avg,
    exp.Min,
    exp.Max,
    exp.AnyValue,
    exp.First,
    exp.Last,
    exp.Distinct,
    exp.ArgMax,
    exp.ArgMin,
    exp.Filter,
    exp.Window,
    exp.Lag,
    exp.Lead,
    exp.NthValue,
    exp.FirstValue,
    exp.LastValue,
    exp.Ordered,
    exp.Tuple,
    exp.Rollup,
    exp.Cube,
    exp.GroupingSets,
    exp.Coalesce,
    exp.Nullif,
    exp.Greatest,
    exp.Least,
    exp.Case,
    exp.If,
)
"""Expressions whose result has the value of the column, or computes the same from equal numbers of any type."""

_CALCULATING = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.Abs)
"""Expressions that compute the same from equal whole numbers of any type, but round other numbers by their type."""

_CLAUSES = (exp.Select, exp.Where, exp.Having, exp.Group, exp.Order, exp.Join, exp.Qualify, exp.And, exp.Or, exp.Not)


def column_uses(tree: exp.Expr, tables: Mapping[int, str]) -> ColumnUses:
    """Find how a query uses columns.

    Args:
        tree: The query.
        tables: The full names of its tables, by the offset of the name.
    """
    return ColumnUses(
        _needs_all(tree),
        frozenset(_unqualified(tree, tables)),
        frozenset(_computed(tree, ())),
        frozenset(_computed(tree, _CALCULATING)),
        frozenset(_beside_clock(tree)),
    )


def _beside_clock(tree: exp.Expr) -> Iterator[str]:
    """Yield the columns that are compared with text such as 'today'."""
    for text in tree.find_all(exp.Literal):
        if text.is_string and OF_TODAY.fullmatch(text.name) and (parent := text.parent) is not None:
            while isinstance(parent, exp.Paren) and parent.parent is not None:
                parent = parent.parent
            if isinstance(parent, (*_COMPARISONS, exp.Coalesce)):
                beside = (node.unnest() for node in parent.iter_expressions())
                yield from (node.name.lower() for node in beside if isinstance(node, exp.Column))


def _needs_all(tree: exp.Expr) -> bool:
    if has_inner_star(tree) or any(join.args.get("method") == "NATURAL" for join in tree.find_all(exp.Join)):
        return True
    inner = (
        node for node in tree.find_all(exp.Select, exp.SetOperation) if node is not tree and _removes_equal_rows(node)
    )
    return any(select.is_star for node in inner for select in node.find_all(exp.Select))


def _removes_equal_rows(node: exp.Expr) -> bool:
    return isinstance(node, exp.Except | exp.Intersect) or bool(node.args.get("distinct"))


def _unqualified(tree: exp.Expr, tables: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """Yield the names without a table, with each table beside which they stand."""
    beside: dict[int, list[str]] = {}
    relations = set()
    for table in tree.find_all(exp.Table, exp.Subquery):
        relations.add(table.alias_or_name.lower())
        full_name = tables.get(table.parts[0].meta.get("start", -1)) if isinstance(table, exp.Table) else None
        if full_name is not None:
            beside.setdefault(id(table.find_ancestor(exp.Select)), []).append(full_name)
    for column in tree.find_all(exp.Column):
        first = column.parts[0].name.lower()
        if len(column.parts) == 1 or first not in relations:
            for full_name in beside.get(id(column.find_ancestor(exp.Select)), ()):
                yield full_name, first


def _computed(tree: exp.Expr, passing: tuple[type[exp.Expr], ...]) -> set[str]:
    """Return the columns from which values are computed, also through a name that a subquery gave them.

    Expressions of `passing` do not count.
    """
    found: set[str] = set()
    for column in tree.find_all(exp.Column):
        if _is_computed_from(column, _TAKING + passing):
            found |= _names(column)
    aliases = [(alias.alias.lower(), alias.this) for alias in tree.find_all(exp.Alias)]
    while more := {name for alias, this in aliases if alias in found for name in _names(this)} - found:
        found |= more
    return found


def _is_computed_from(column: exp.Column, passing: tuple[type[exp.Expr], ...]) -> bool:
    node = column.parent
    while isinstance(node, passing):
        node = node.parent
    return not isinstance(node, _CLAUSES + _COMPARISONS)


def _names(node: exp.Expr) -> set[str]:
    return {part.name.lower() for column in node.find_all(exp.Column) for part in column.parts}
