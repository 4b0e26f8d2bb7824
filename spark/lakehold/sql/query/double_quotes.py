"""Finds texts in double quotes in the places of columns, where other databases read them as names."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import TokenType

from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.dialect import StatementText

_COMPARING = frozenset({"=", "==", "<>", "!=", "<", ">", "<=", ">=", "<=>", "IN", "IS", "BETWEEN", "LIKE", "NOT"})
_BEFORE_A_CONDITION = frozenset({"(", "AND", "NOT", "ON", "OR", "WHERE", "HAVING"})
_BEFORE_AN_ITEM = frozenset({",", "BY", "DISTINCT", "SELECT"})
_AFTER_AN_ITEM = frozenset({",", "FROM", ")", ""})


def texts_like_columns(written: StatementText) -> Iterator[str]:
    """Yield the texts in double quotes that a query selects as they are, groups or sorts by, or compares with something.

    Args:
        written: A statement with a query. Names in double quotes that stand elsewhere in it are not found.
    """
    cursor, before = Cursor(written), ""
    in_query: list[bool] = [False]
    while not cursor.at_end:
        token = cursor.advance()
        text, after = cursor.source_text(token).upper(), cursor.source_text(cursor.peek()).upper()
        if text == "(":
            in_query.append(False)
        elif text == ")" and len(in_query) > 1:
            in_query.pop()
        elif text == "SELECT":
            in_query[-1] = True
        is_text = token.token_type is TokenType.STRING and text[0] == '"'
        is_item = in_query[-1] and before in _BEFORE_AN_ITEM and after in _AFTER_AN_ITEM
        if is_text and (is_item or (any(in_query) and before in _BEFORE_A_CONDITION and after in _COMPARING)):
            yield token.text
        before = text
