"""Parsing statements of Spark's, only as far as needed to know which table they would change, and which changes they read."""

from __future__ import annotations

from lakehold.sql.query.changes import find_changes
from lakehold.sql.statements import ForSpark, PlacedChanges
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.dialect import StatementText, split
from lakehold.sql.text.names import spark_table_reference

# fmt: off
SPARK_WORDS = (
    "ADD", "ANALYZE", "CACHE", "CALL", "CLEAR", "COMMENT", "DECLARE", "DELETE", "DESC", "DESCRIBE", "DFS", "EXECUTE",
    "EXPORT", "FETCH", "FROM", "IMPORT", "INSERT", "LIST", "LOAD", "LOCK", "MAP", "MERGE", "MSCK", "OPEN", "REDUCE",
    "REFRESH", "REPAIR", "REPLACE", "RESET", "ROLLBACK", "SET", "START", "TABLE", "TRUNCATE", "UNCACHE", "UNLOCK",
    "UPDATE", "USE", "VALUES",
)
# fmt: on
"""Words with which statements of Spark begin, besides those with which lakehold's do."""

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

_READING = frozenset({"SELECT", "WITH", "FROM", "INSERT", "MERGE", "UPDATE", "DELETE", "EXPLAIN"})
_CREATING = (
    ("CREATE", "TABLE"),
    ("CREATE", "OR", "REPLACE", "TABLE"),
    ("REPLACE", "TABLE"),
)
"""The first words of statements that may read `CHANGES(…)`."""


def parse_foreign(cursor: Cursor) -> ForSpark:
    """Find the table that a statement of Spark's would change; the statement itself is passed on as written."""
    if cursor.accept("WITH"):
        _skip_common_tables(cursor)
    if cursor.at_words("FROM"):
        return _inserted(cursor)
    if cursor.accept("ALTER", "TABLE"):
        target = _target(cursor)
        return ForSpark("RENAME" if cursor.at_words("RENAME", "TO") else "ALTER", target) if target else ForSpark()
    if cursor.accept("EXECUTE", "IMMEDIATE"):
        return _executed(cursor)
    return _changed(cursor)


def _executed(cursor: Cursor) -> ForSpark:
    """Find the table that the statement in the text of `EXECUTE IMMEDIATE '…' [INTO …] [USING …]` would change.

    Raises:
        StatementError: The text is computed, so lakehold cannot tell which table the statement would change.
    """
    after = cursor.source_text(cursor.peek(1)).upper()
    if not cursor.is_text() or after not in ("", "INTO", "USING"):
        hint = "write the statement itself, or its whole text after EXECUTE IMMEDIATE"
        raise cursor.error_at(cursor.peek(), "expected a statement in single quotes", hint=hint)
    written = split(cursor.peek().text, cursor.catalog)
    return parse_foreign(Cursor(written[0])) if len(written) == 1 else ForSpark()


def _inserted(cursor: Cursor) -> ForSpark:
    """Find the tables of `FROM … INSERT INTO … SELECT … INSERT INTO … SELECT …`."""
    found: list[ForSpark] = []
    while not cursor.at_end:
        cursor.take_until(lambda: cursor.at_words("INSERT"))
        found.append(_changed(cursor))
        if not cursor.at_end:
            cursor.advance()
    targets = tuple(dict.fromkeys(target for each in found for target in each.targets))
    return ForSpark("INSERT", targets) if targets else ForSpark()


def _changed(cursor: Cursor) -> ForSpark:
    for words, verb in _TARGETS.items():
        if cursor.accept(*words):
            target = _target(cursor)
            return ForSpark(verb, target) if target else ForSpark()
    return ForSpark()


def _target(cursor: Cursor) -> tuple[str, ...]:
    """Read the name of the changed table, as written or in the string of `IDENTIFIER('…')`.

    Empty for text that names no table: such as `INSERT OVERWRITE DIRECTORY '…'`, or an error that Spark reports.

    Raises:
        StatementError: IDENTIFIER has another expression, so lakehold cannot tell which table the statement would change.
    """
    if cursor.at_words("IDENTIFIER") and cursor.source_text(cursor.peek(1)) == "(":
        return (_without_branch(_named_by_text(cursor)),)
    name = spark_table_reference(cursor)
    return (_without_branch(name),) if name else ()


def _named_by_text(cursor: Cursor) -> str:
    first = cursor.peek()
    cursor.expect("IDENTIFIER")
    cursor.expect_symbol("(")
    written = split(cursor.peek().text, cursor.catalog) if cursor.is_text() else ()
    if len(written) == 1 and cursor.source_text(cursor.peek(1)) == ")" and cursor.source_text(cursor.peek(2)) != ".":
        name = Cursor(written[0])
        target = spark_table_reference(name)
        if target and name.at_end:
            cursor.advance()
            cursor.expect_symbol(")")
            return target
    raise cursor.error_at(
        first,
        "expected the name of a table",
        hint="write the name itself; one of a table that is called identifier needs backquotes",
    )


def _without_branch(name: str) -> str:
    """Return the name of the table whose branch `name` is: a write to `branch_main` is one to the table."""
    table, _, last = name.rpartition(".")
    return table if last.startswith("branch_") and "." in table else name


def _skip_common_tables(cursor: Cursor) -> None:
    """Skip `a AS (…), b (x) (…)` after WITH; their names are no keywords: a subquery may be called DELETE."""
    if cursor.word(1) != "AS" and cursor.source_text(cursor.peek(1)) != "(":
        cursor.accept("RECURSIVE")
    while not cursor.at_end:
        cursor.advance()
        while _skip_brackets(cursor) or cursor.accept("AS") or _skip_level(cursor):
            pass
        if not cursor.accept_symbol(","):
            return


def _skip_brackets(cursor: Cursor) -> bool:
    opened = cursor.accept_symbol("(")
    if opened:
        cursor.take_until(lambda: False)
        cursor.accept_symbol(")")
    return opened


def _skip_level(cursor: Cursor) -> bool:
    found = cursor.accept("MAX", "RECURSION", "LEVEL")
    if found and not cursor.at_end:
        cursor.advance()
    return found


def changes_for_spark(written: StatementText) -> tuple[PlacedChanges, ...]:
    """Find every `CHANGES(…)` in a statement of Spark's.

    Raises:
        StatementError: One of them is not well formed, or the statement is not one that may read changes.
    """
    found = find_changes(written)
    if found:
        _refuse_other_statements(written, found[0])
    return found


def _refuse_other_statements(written: StatementText, found: PlacedChanges) -> None:
    """Refuse statements that keep the query's text or result in the session, such as views: the rows are gone then."""
    cursor = Cursor(written)
    is_query = cursor.word() in _READING or cursor.source_text(cursor.peek()) == "("
    if is_query or any(cursor.at_words(*words) for words in _CREATING):
        return
    while cursor.peek().start != found.start:
        cursor.advance()
    raise cursor.error_at(
        cursor.peek(),
        "this statement cannot read CHANGES",
        hint="queries, INSERT, MERGE, UPDATE, DELETE and CREATE TABLE … AS can; CREATE SUBSCRIPTION keeps changes in a table",
    )
