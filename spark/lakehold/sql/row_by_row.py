"""Recognizes queries that work row by row: over a diff of their table they give the diff of their result.

SUBSCRIBE runs such a query over each diff. It compares whole results of any other query.
"""

from __future__ import annotations

from sqlglot import exp

from lakehold.sql.cursor import Cursor
from lakehold.sql.query_tree import QueryTree
from lakehold.sql.row_functions import ROW_FUNCTIONS

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
    if not (isinstance(select, exp.Select) and _is_plain(select) and _calls_only_row_functions(query)):
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


def _calls_only_row_functions(query: QueryTree) -> bool:
    """Return whether each name before a bracket is a known function of one row: an unknown one might aggregate."""
    cursor = Cursor(query.written)
    while not cursor.at_end:
        if cursor.source_text(cursor.peek(1)) == "(" and not _may_stand_before_brackets(cursor):
            return False
        if cursor.source_text(cursor.peek()) == "|>":
            return False
        cursor.advance()
    return True


def _may_stand_before_brackets(cursor: Cursor) -> bool:
    text = cursor.source_text(cursor.peek())
    is_name = text[0] == "`" or cursor.word()
    name = cursor.peek().text
    return not is_name or name.lower() in ROW_FUNCTIONS or cursor.word() in _BEFORE_BRACKETS
