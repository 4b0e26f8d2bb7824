"""Parsing the SELECT that ends with a time: `SELECT … AS OF t`."""

from __future__ import annotations

from sqlglot import TokenType

from lakehold.sql.query.queries import TIMES_OF_ONE_TABLE, parse_query
from lakehold.sql.statements import SelectAsOf
from lakehold.sql.text.as_of import parse_as_of
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.dialect import StatementText

_TIME_WORDS = frozenset({"TIMESTAMP", "EARLIEST", "LATEST"})


def parse_select_as_of(cursor: Cursor) -> SelectAsOf | None:
    """Parse `SELECT … AS OF t` or `WITH … SELECT … AS OF t`; None for a query without a time at its end, which Spark runs."""
    cursor.rewind(0)
    tokens = cursor.take_until(lambda: _at_as_of(cursor))
    if not cursor.accept("AS", "OF"):
        return None
    as_of = parse_as_of(cursor)
    cursor.expect_end()
    return SelectAsOf(parse_query(StatementText(cursor.sql, tokens, cursor.catalog), repeatable=False), as_of)


def _at_as_of(cursor: Cursor) -> bool:
    """Return whether AS OF and a time of the whole query follow.

    In `FROM t AS of` there is an alias, in `t VERSION AS OF 1` a time of one table.
    """
    if not cursor.at_words("AS", "OF") or cursor.source_text(cursor.last).upper() in TIMES_OF_ONE_TABLE:
        return False
    is_least = cursor.word(2) == "AT" and cursor.word(3) == "LEAST"
    is_time = cursor.peek(2).token_type is TokenType.NUMBER or cursor.is_text(2)
    return is_time or is_least or cursor.word(2) in _TIME_WORDS
