"""Parsing a text that must be one query, for programs that read its rows as a stream."""

from __future__ import annotations

from dataclasses import replace

from lakehold.errors import StatementError
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.query.query_tree import QueryTree, read_tree
from lakehold.sql.statements import ForSpark, ParsedStatement, SelectAsOf
from lakehold.sql.text.dialect import split

CHANGES_NAME = "mz_diff"
"""Stands for each `CHANGES(…)` in the syntax tree of a query; no table without a namespace has the name."""

_DESCRIBING = frozenset({"SHOW", "DESCRIBE", "DESC", "EXPLAIN"})


def parse_one_query(sql: str, catalog: str) -> ParsedStatement:
    """Parse a text that is one query, which may end with a time, or one SHOW, DESCRIBE or EXPLAIN of Spark's.

    The names of tables may begin with `catalog`.

    Raises:
        StatementError: The text is another statement, or more than one.
    """
    script = parse_script(sql, catalog)
    if len(script) == 1 and isinstance(script[0].statement, SelectAsOf | ForSpark):
        if not describes(script[0]):
            query_tree(script[0])
        return script[0]
    raise StatementError("expected one query", sql=sql, start=0, end_exclusive=len(sql))


def describes(parsed: ParsedStatement) -> bool:
    """Return whether a statement is one of Spark's that describes what there is, and has rows."""
    first = parsed.written.tokens[0].text.upper()
    return isinstance(parsed.statement, ForSpark) and first in _DESCRIBING


def query_tree(parsed: ParsedStatement) -> QueryTree:
    """Return the syntax tree of a query; `CHANGES(…)` is a table called `CHANGES_NAME` in it.

    Raises:
        StatementError: The statement is no query.
    """
    written, statement = parsed.written, parsed.statement
    if isinstance(statement, SelectAsOf):
        return read_tree(split(statement.query.text, written.catalog)[0])
    sql = written.sql
    for placed in statement.changes if isinstance(statement, ForSpark) else ():
        length = placed.end_exclusive - placed.start
        sql = f"{sql[: placed.start]}{CHANGES_NAME.ljust(length)}{sql[placed.end_exclusive :]}"
    tokens = tuple(t for each in split(sql, written.catalog) for t in each.tokens)
    within = tuple(t for t in tokens if written.start <= t.start < written.end_exclusive)
    return read_tree(replace(written, sql=sql, tokens=within))
