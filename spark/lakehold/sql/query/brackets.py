"""Leaves out brackets that change nothing: around a whole query, and around a SELECT between UNION ALL.

Only SELECTs without brackets can be computed from the changes of their tables.
"""

from __future__ import annotations

from dataclasses import replace

from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.dialect import StatementText

_OF_A_WHOLE_QUERY = frozenset(
    {"CLUSTER", "DISTRIBUTE", "EXCEPT", "INTERSECT", "LIMIT", "MINUS", "OFFSET", "ORDER", "SORT", "UNION", "|>"}
)
"""Words after a SELECT that brackets around it keep to themselves."""


def without_brackets(written: StatementText) -> StatementText:
    """Return a query with blanks for brackets that change nothing, so that all places stay."""
    while (pair := _outer(written)) is not None:
        tokens, sql = list(written.tokens), written.sql
        for place in reversed(pair):
            token = tokens.pop(place)
            sql = f"{sql[: token.start]} {sql[token.end + 1 :]}"
        written = replace(written, sql=sql, tokens=tuple(tokens))
    return written


def _outer(written: StatementText) -> tuple[int, int] | None:
    """Find the first pair of brackets that changes nothing, as places in `written.tokens`."""
    cursor = Cursor(written)
    before: tuple[str, str] | None = None
    while not cursor.at_end:
        if cursor.source_text(cursor.peek()) != "(":
            word = cursor.word()
            cursor.advance()
            before = ("" if before is None else before[1], word)
            continue
        first = cursor.position
        cursor.advance()
        is_query = cursor.word() == "SELECT" or cursor.source_text(cursor.peek()) == "("
        cursor.take_until(lambda: cursor.word() in _OF_A_WHOLE_QUERY or cursor.source_text(cursor.peek()) == "|>")
        is_select = cursor.source_text(cursor.peek()) == ")"
        cursor.take_until(lambda: False)
        last = cursor.position
        if not cursor.accept_symbol(")"):
            return None
        is_last = not cursor.source_text(cursor.peek())
        if before is None and is_last and last > first + 1:
            return first, last
        is_part = before in (None, ("UNION", "ALL")) and (is_last or cursor.at_words("UNION", "ALL"))
        if is_query and is_select and is_part:
            return first, last
        before = ("", "")
    return None
