"""Parsing statements of Spark's, only as far as needed to know which table they would change."""

from __future__ import annotations

from lakehold.errors import StatementError
from lakehold.sql.cursor import Cursor
from lakehold.sql.names import table_reference
from lakehold.sql.statements import ForSpark

_TARGETS: dict[tuple[str, ...], str] = {
    ("INSERT", "INTO", "TABLE"): "INSERT",
    ("INSERT", "INTO"): "INSERT",
    ("INSERT", "OVERWRITE", "TABLE"): "INSERT",
    ("INSERT", "OVERWRITE"): "INSERT",
    ("UPDATE",): "UPDATE",
    ("DELETE", "FROM"): "DELETE",
    ("MERGE", "INTO"): "MERGE",
    ("MERGE", "WITH", "SCHEMA", "EVOLUTION", "INTO"): "MERGE",
    ("TRUNCATE", "TABLE"): "TRUNCATE",
    ("DROP", "TABLE", "IF", "EXISTS"): "DROP",
    ("DROP", "TABLE"): "DROP",
    ("CREATE", "TABLE", "IF", "NOT", "EXISTS"): "CREATE",
    ("CREATE", "TABLE"): "CREATE",
    ("CREATE", "OR", "REPLACE", "TABLE"): "REPLACE",
    ("REPLACE", "TABLE"): "REPLACE",
}
"""The words before the name of the table a statement changes, longer ones first."""


def parse_foreign(cursor: Cursor) -> ForSpark:
    """Find the table that a statement of Spark's would change; the statement itself is passed on as written."""
    if cursor.word() in ("WITH", "FROM"):
        _skip_to_insert(cursor)
    if cursor.accept("ALTER", "TABLE"):
        return _altered(cursor)
    for words, verb in _TARGETS.items():
        if cursor.accept(*words):
            try:
                return ForSpark(verb, table_reference(cursor))
            except StatementError:
                return ForSpark()  # Such as `INSERT OVERWRITE DIRECTORY '…'`: no table, or an error that Spark reports.
    return ForSpark()


def _altered(cursor: Cursor) -> ForSpark:
    try:
        target = table_reference(cursor)
    except StatementError:
        return ForSpark()
    return ForSpark("RENAME", target) if cursor.at_words("RENAME", "TO") else ForSpark()


def _skip_to_insert(cursor: Cursor) -> None:
    """Skip `WITH …` or `FROM …`, which may come before an INSERT, to the INSERT outside of parentheses."""
    depth = 0
    while not cursor.at_end and not (depth == 0 and cursor.word() == "INSERT"):
        text = cursor.source_text(cursor.advance())
        depth += (text == "(") - (text == ")")
