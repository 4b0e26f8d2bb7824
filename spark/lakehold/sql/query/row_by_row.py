"""Recognizes queries that work row by row: over a diff of their table they give the diff of their result.

SUBSCRIBE runs such a query over each diff. `incremental_query` recognizes the others of which it need not compare whole results.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from lakehold.sql.query.query_tree import QueryTree
from lakehold.sql.query.row_functions import ROW_FUNCTIONS
from lakehold.sql.text.cursor import Cursor

_CLAUSES = frozenset({"expressions", "from_", "where"})
_OF_A_TABLE = frozenset({"this", "db", "catalog", "alias"})
_SYNTAX = "ALL AND BETWEEN CASE DIV ELSE ESCAPE EXCEPT ILIKE IN INTERVAL IS LIKE NOT ON OR REGEXP RLIKE SELECT THEN WHEN WHERE"
_TYPES = "CHAR CHARACTER DEC DECIMAL NUMERIC VARCHAR"
_BEFORE_BRACKETS = frozenset([*_SYNTAX.split(), *_TYPES.split()])
"""Words before a bracket that are no names of functions: words of syntax, and types that have parameters."""


def select_list_offset(query: QueryTree) -> int | None:
    """Return where a row-by-row query lets the columns of a diff be added: its offset after SELECT, hints and ALL.

    None unless the query filters and computes the rows of one table one by one, with known functions of one row.
    """
    select = query.tree
    if not (isinstance(select, exp.Select) and _is_plain(select) and unknown_call(query) is None):
        return None
    if has_inner_star(select):
        return None
    cursor = Cursor(query.written)
    if not cursor.accept("SELECT"):
        return None
    while cursor.source_text(cursor.peek()).startswith("/*+"):
        cursor.advance()
    cursor.accept("ALL")
    return cursor.last.end + 1 - query.written.start


def _is_plain(select: exp.Select) -> bool:
    """Return whether the query has only a select list, one table without further clauses, and maybe a WHERE."""
    clauses = {name for name, value in select.args.items() if value}
    source = select.args["from_"].this if "from_" in clauses else None
    return (
        "expressions" in clauses
        and clauses <= _CLAUSES
        and isinstance(source, exp.Table)
        and {name for name, value in source.args.items() if value} <= _OF_A_TABLE
        and not source.alias_column_names
        and not any(node is not select and isinstance(node, exp.Query | exp.QueryTransform) for node in select.walk())
    )


def has_inner_star(tree: exp.Expr) -> bool:
    """Return whether a `*` inside an expression stands for columns: over a diff it would also stand for timestamp and diff."""
    for star in tree.find_all(exp.Star):
        columns = star.parent if isinstance(star.parent, exp.Column) else star
        around = columns.parent
        is_item = isinstance(around, exp.Select) and columns.arg_key == "expressions"
        counts_rows = isinstance(around, exp.Count) and columns is star and not around.expressions
        if not (is_item or counts_rows):
            return True
    return False


def unknown_call(query: QueryTree, others: Collection[str] = ()) -> str | None:
    """Return what may aggregate or multiply rows: the first name before a bracket that is no function of one row.

    Args:
        query: The query.
        others: Further names that may stand before brackets, in lowercase.
    """
    cursor = Cursor(query.written)
    while not cursor.at_end:
        if is_quantified_like(cursor.word(), cursor.word(1)):
            cursor.advance()
        elif cursor.source_text(cursor.peek(1)) == "(" and not _may_stand_before_brackets(cursor, others):
            return cursor.source_text(cursor.peek())
        if cursor.source_text(cursor.peek()) == "|>":
            return "|>"
        cursor.advance()
    return None


def is_quantified_like(word: str, following: str) -> bool:
    """Return whether two words are `LIKE ANY` or the like, in which `ANY` is no call of an aggregate."""
    return word in {"LIKE", "ILIKE"} and following in {"ANY", "SOME", "ALL"}


def _may_stand_before_brackets(cursor: Cursor, others: Collection[str]) -> bool:
    text = cursor.source_text(cursor.peek())
    is_name = text[0] == "`" or cursor.word()
    name = cursor.peek().text.lower()
    return not is_name or name in ROW_FUNCTIONS or name in others or cursor.word() in _BEFORE_BRACKETS
