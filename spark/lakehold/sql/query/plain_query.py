"""Plain queries, which only select columns and compare them with constants: lakehold answers them without Spark.

Spark answers queries whose text sqlglot might read differently: with escapes in constants, or with double quotes, whose
meaning is a setting of the session.
"""

from __future__ import annotations

from sqlglot import exp

from lakehold.sql.query.query_tree import QueryTree
from lakehold.subscribe.plain_select import (
    ALL_COLUMNS,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Constant,
    IsNull,
    Negated,
    OneOf,
    PlainSelect,
)

_AMBIGUOUS = ("\\", '"', "''")

_OPERATORS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.NEQ: ("!=", "!="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
"""The operator of each comparison, and the one with which its sides can be exchanged."""


class _NotPlain(Exception):
    """A signal that the query is not plain, so that Spark has to answer it."""


def plain_select(query: QueryTree) -> PlainSelect | None:
    """Convert a row-by-row query to a plain one; None if it computes something, or Spark might read it differently."""
    if any(text in query.written.text for text in _AMBIGUOUS):
        return None
    where = query.tree.args.get("where")
    try:
        columns = tuple(_column_of(item) for item in query.tree.expressions)
        return PlainSelect(columns, _condition(where.this) if where is not None else None)
    except _NotPlain:
        return None


def _column_of(item: exp.Expr) -> tuple[str, str]:
    match item:
        case exp.Star() if not any(item.args.values()):
            return ALL_COLUMNS
        case exp.Alias(this=column, alias=str(alias)):
            return _column(column), alias
        case _:
            name = _column(item)
            return name, name


def _column(node: exp.Expr) -> str:
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) and len(node.parts) == 1:
        return str(node.this.this)
    raise _NotPlain


def _condition(node: exp.Expr) -> Condition:  # noqa: PLR0911 - one for each kind of condition
    match node:
        case exp.Paren(this=inner):
            return _condition(inner)
        case exp.And():
            return AllOf(tuple(map(_condition, node.flatten())))
        case exp.Or():
            return AnyOf(tuple(map(_condition, node.flatten())))
        case exp.Not(this=inner):
            return Negated(_condition(inner))
        case exp.Is(this=column, expression=exp.Null()):
            return IsNull(_column(column))
        case exp.In(this=column, expressions=constants) if constants:
            return OneOf(_column(column), tuple(map(_constant, constants)))
        case exp.Between(this=column, args={"low": low, "high": high}) if not node.args.get("symmetric"):
            name = _column(column)
            return AllOf((Comparison(name, ">=", _constant(low)), Comparison(name, "<=", _constant(high))))
        case exp.Column():
            return Comparison(_column(node), "=", True)
        case _:
            return _comparison(node)


def _comparison(node: exp.Expr) -> Comparison:
    if type(node) not in _OPERATORS:
        raise _NotPlain
    operator, exchanged = _OPERATORS[type(node)]
    left, right = node.this, node.expression
    if isinstance(left, exp.Column):
        return Comparison(_column(left), operator, _constant(right))
    return Comparison(_column(right), exchanged, _constant(left))


def _constant(node: exp.Expr) -> Constant:
    match node:
        case exp.Boolean(this=value):
            return bool(value)
        case exp.Literal(this=text) if node.is_string:
            return str(text)
        case exp.Literal(this=text) if text.isascii() and text.isdigit():
            return int(text)
        case exp.Neg(this=exp.Literal() as number) if not number.is_string:
            value = _constant(number)
            return -value if isinstance(value, int) else value
        case _:
            raise _NotPlain
