"""`ALTER TABLE | MATERIALIZED VIEW … SET (RETAIN HISTORY = '…')` and `RESET (RETAIN HISTORY)`.

Every other ALTER TABLE is Spark's.
"""

from __future__ import annotations

from lakehold.holds.retention import RETAIN_HISTORY
from lakehold.sql.cursor import Cursor
from lakehold.sql.names import table_reference
from lakehold.sql.options import RETENTION, parse_options
from lakehold.sql.statements import RetainHistory


def parse_alter_table(cursor: Cursor) -> RetainHistory | None:
    """Parse `table SET (RETAIN HISTORY = duration)` or `table RESET (RETAIN HISTORY)`; None for statements of Spark's."""
    return parse_alter_view(cursor) if _is_own(cursor) else None


def parse_alter_view(cursor: Cursor) -> RetainHistory:
    """Parse `name SET (RETAIN HISTORY = duration)` or `name RESET (RETAIN HISTORY)`."""
    name = table_reference(cursor)
    if cursor.choose("SET", "RESET") == "SET":
        retained_ms = parse_options(cursor, RETENTION)[RETAIN_HISTORY]
        statement = RetainHistory(name, int(str(retained_ms)))
    else:
        cursor.expect_symbol("(")
        cursor.expect("RETAIN", "HISTORY")
        cursor.expect_symbol(")")
        statement = RetainHistory(name, None)
    cursor.expect_end()
    return statement


def _is_own(cursor: Cursor) -> bool:
    """Return whether SET or RESET comes directly before a parenthesis.

    In Spark's statements a word such as TBLPROPERTIES follows SET, and there is no RESET.
    """
    offset = 0
    while (text := cursor.source_text(cursor.peek(offset))) and text != "(":
        offset += 1
    return cursor.word(offset - 1) in ("SET", "RESET") if offset > 1 else False
