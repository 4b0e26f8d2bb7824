"""Text -> statements: which statement it is, and the short ones. What lakehold has no statement for is Spark's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakehold.errors import StatementError
from lakehold.sql.cursor import Cursor, did_you_mean
from lakehold.sql.dialect import StatementText, split
from lakehold.sql.names import object_reference
from lakehold.sql.parse_as_of import parse_select_as_of
from lakehold.sql.parse_create import parse_connection, parse_source, parse_table
from lakehold.sql.parse_foreign import parse_foreign
from lakehold.sql.parse_subscribe import parse_subscribe
from lakehold.sql.statements import Drop, ExplainSubscribe, ObjectKind, Show, ShowCreate, Statement, SubscribeTo
from lakehold.subscribe.statement import Subscribe


@dataclass(frozen=True)
class ParsedStatement:
    """A statement and where it was written."""

    written: StatementText
    statement: Statement


def parse_script(sql: str) -> tuple[ParsedStatement, ...]:
    """All statements of `sql`; nothing runs before all of them are understood.

    Raises:
        StatementError: With the place in `sql`.
    """
    return tuple(ParsedStatement(written, parse_statement(written)) for written in split(sql))


def parse_statement(written: StatementText) -> Statement:
    """The statement that `written` says.

    Raises:
        StatementError: It is one of lakehold's, and not well formed.
    """
    cursor = Cursor(written)
    for words, production in _PRODUCTIONS.items():
        if cursor.accept(*words):
            statement = production(cursor)
            if statement is not None:
                return statement
            cursor.rewind(0)
    _refuse_near_miss(cursor)
    return parse_foreign(cursor)


def parse_subscription(sql: str) -> Subscribe:
    """The one SUBSCRIBE that `sql` is.

    Raises:
        StatementError: It is something else, or more than one statement.
    """
    script = parse_script(sql)
    if len(script) == 1 and isinstance(script[0].statement, SubscribeTo):
        return script[0].statement.subscribe
    start = script[1].written.start if len(script) > 1 and isinstance(script[0].statement, SubscribeTo) else 0
    raise StatementError("expected one SUBSCRIBE", sql=sql, start=start, end_exclusive=len(sql))


def _drop(cursor: Cursor, kind: ObjectKind) -> Statement | None:
    if_exists = cursor.accept("IF", "EXISTS")
    name = object_reference(cursor, kind)
    cascade = cursor.accept("CASCADE")
    if kind is ObjectKind.TABLE and not cursor.at_end:
        return None
    cursor.expect_end()
    return Drop(kind, name, if_exists, cascade)


def _show(cursor: Cursor, kind: ObjectKind) -> Statement | None:
    """`SHOW TABLES IN …` and the like are Spark's."""
    if kind is ObjectKind.TABLE and not cursor.at_end:
        return None
    cursor.expect_end()
    return Show(kind)


def _show_create(cursor: Cursor, kind: ObjectKind) -> Statement | None:
    name = object_reference(cursor, kind)
    if kind is ObjectKind.TABLE and not cursor.at_end:
        return None
    cursor.expect_end()
    return ShowCreate(kind, name)


_PRODUCTIONS: dict[tuple[str, ...], Callable[[Cursor], Statement | None]] = {
    ("CREATE", "CONNECTION"): parse_connection,
    ("CREATE", "SOURCE"): parse_source,
    ("CREATE", "TABLE"): parse_table,
    ("DROP", "CONNECTION"): lambda cursor: _drop(cursor, ObjectKind.CONNECTION),
    ("DROP", "SOURCE"): lambda cursor: _drop(cursor, ObjectKind.SOURCE),
    ("DROP", "TABLE"): lambda cursor: _drop(cursor, ObjectKind.TABLE),
    ("SHOW", "CONNECTIONS"): lambda cursor: _show(cursor, ObjectKind.CONNECTION),
    ("SHOW", "SOURCES"): lambda cursor: _show(cursor, ObjectKind.SOURCE),
    ("SHOW", "TABLES"): lambda cursor: _show(cursor, ObjectKind.TABLE),
    ("SHOW", "CREATE", "CONNECTION"): lambda cursor: _show_create(cursor, ObjectKind.CONNECTION),
    ("SHOW", "CREATE", "SOURCE"): lambda cursor: _show_create(cursor, ObjectKind.SOURCE),
    ("SHOW", "CREATE", "TABLE"): lambda cursor: _show_create(cursor, ObjectKind.TABLE),
    ("SUBSCRIBE",): lambda cursor: SubscribeTo(parse_subscribe(cursor)),
    ("EXPLAIN", "SUBSCRIBE"): lambda cursor: ExplainSubscribe(parse_subscribe(cursor)),
    ("SELECT",): parse_select_as_of,
    ("WITH",): parse_select_as_of,
}
"""Statements by their first words; a production that says None leaves the statement to Spark."""

_SPARK_NOUNS = frozenset({"TABLE", "TABLES", "CREATE"})


def _refuse_near_miss(cursor: Cursor) -> None:
    """`CREATE SORCE` is ours misspelt: say so at once, not after Spark has started to say less."""
    first, second = cursor.word(), cursor.word(1)
    if did_you_mean(first, ["SUBSCRIBE"]):
        raise cursor.error("SUBSCRIBE")
    nouns = [words[1] for words in _PRODUCTIONS if words[0] == first and words[1:] and words[1] not in _SPARK_NOUNS]
    if second not in _SPARK_NOUNS and did_you_mean(second, nouns):
        cursor.advance()
        raise cursor.error(*dict.fromkeys(nouns))
