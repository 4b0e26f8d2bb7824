"""`CREATE CONNECTION` and `CREATE TABLE … FROM SOURCE`, one function a production."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.types import StringType
from sqlglot import Token

from lakehold.definitions import (
    Connection,
    DeclaredColumn,
    Envelope,
    OptionValue,
    Table,
)
from lakehold.errors import StatementError
from lakehold.ingest.column_names import name_fault
from lakehold.ingest.decode.types import ColumnType
from lakehold.sql.column_types import parse_type
from lakehold.sql.cursor import Cursor
from lakehold.sql.names import new_table_name
from lakehold.sql.options import CONNECTIONS, TABLE, parse_options
from lakehold.sql.parse_capture import parse_upstream_table
from lakehold.sql.statements import CreateConnection, CreateTable

_ENVELOPES = {envelope.sql: envelope for envelope in Envelope}


_SYSTEMS = {connection_type.value.replace("-", " ").upper(): connection_type for connection_type in CONNECTIONS}


def parse_connection(cursor: Cursor) -> CreateConnection:
    """`[IF NOT EXISTS] name TO KAFKA | SCHEMA REGISTRY | POSTGRES | MYSQL | CONNECT (options)`."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.object_name("a connection name")
    cursor.expect("TO")
    connection_type = _SYSTEMS[cursor.choose(*_SYSTEMS)]
    connection = Connection(name, connection_type, parse_options(cursor, CONNECTIONS[connection_type]))
    cursor.expect_end()
    return CreateConnection(connection, if_not_exists)


def parse_table(cursor: Cursor) -> CreateTable | None:
    """`[IF NOT EXISTS] namespace.table [(columns)]`, then FROM SOURCE, KEY, ENVELOPE and WITH in any order.

    None when the statement is Spark's own CREATE TABLE.
    """
    if not _is_fed(cursor):
        return None
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    namespace, name = new_table_name(cursor)
    columns = _columns(cursor) if cursor.accept_symbol("(") else ()
    feed: tuple[str, str, str | None] | None = None
    key: tuple[tuple[str, Token], ...] = ()
    envelope: tuple[Envelope, Token, Token] | None = None
    options: dict[str, OptionValue] = {}
    for clause in cursor.clauses("FROM SOURCE", "KEY", "ENVELOPE", "WITH"):
        match clause:
            case "FROM SOURCE":
                feed = _feed(cursor)
            case "KEY":
                key = _key(cursor)
            case "ENVELOPE":
                first = cursor.peek()
                envelope = _ENVELOPES[cursor.choose(*_ENVELOPES)], first, cursor.last
            case _:
                options = parse_options(cursor, TABLE)
    if feed is None:
        raise cursor.error("FROM SOURCE")
    if envelope is None:
        raise cursor.error("ENVELOPE")
    source, topic, upstream = feed
    if upstream is not None and not envelope[0].wraps_rows:
        raise _of_captured(cursor, *envelope[1:])
    key_columns = _within(cursor, key, columns)
    table = Table(namespace, name, source, topic, envelope[0], columns, key_columns, options, upstream)
    return CreateTable(table, if_not_exists)


def _is_fed(cursor: Cursor) -> bool:
    """Whether FROM SOURCE, or ENVELOPE, stands outside of parentheses and before any query: Spark has neither."""
    depth = offset = 0
    while (text := cursor.source_text(cursor.peek(offset))) and cursor.word(offset) not in ("AS", "SELECT"):
        depth += (text == "(") - (text == ")")
        word = cursor.word(offset) if depth == 0 else ""
        if word == "ENVELOPE" or (word == "FROM" and cursor.word(offset + 1) == "SOURCE"):
            return True
        offset += 1
    return False


def _columns(cursor: Cursor) -> tuple[DeclaredColumn, ...]:
    columns: list[DeclaredColumn] = []
    more = True
    while more:
        token = cursor.peek()
        name = cursor.column_name()
        _refuse_repeated(cursor, token, name, (c.name for c in columns))
        _refuse_unfit(cursor, token, name, (c.name for c in columns))
        columns.append(DeclaredColumn(name, parse_type(cursor)))
        more = cursor.more()
    return tuple(columns)


def _feed(cursor: Cursor) -> tuple[str, str, str | None]:
    """`s (TOPIC 't')` or `s (TABLE 'schema.table')`: source, topic and table upstream, one of them empty."""
    source = cursor.object_name("a source name")
    cursor.expect_symbol("(", hint=f"write FROM SOURCE {source} (TABLE 'schema.table'), or (TOPIC 'topic')")
    kind = cursor.choose("TOPIC", "TABLE")
    cursor.accept_symbol("=")
    upstream = parse_upstream_table(cursor) if kind == "TABLE" else None
    topic = cursor.filled_text("a topic") if upstream is None else ""
    cursor.expect_symbol(")")
    return source, topic, upstream


def _of_captured(cursor: Cursor, first: Token, last: Token) -> StatementError:
    return StatementError(
        "ENVELOPE UPSERT does not read a table of a captured database",
        sql=cursor.sql,
        start=first.start,
        end_exclusive=last.end + 1,
        code="envelope-captured",
        detail="Its connector writes Debezium's change events, which would become rows as they are.",
        hint="write ENVELOPE DEBEZIUM, or ENVELOPE DEBEZIUM UPSERT, which needs no row from before a change",
    )


def _key(cursor: Cursor) -> tuple[tuple[str, Token], ...]:
    """`(a, b)`: the columns, and where each stands."""
    cursor.expect_symbol("(")
    found: list[tuple[str, Token]] = []
    more = True
    while more:
        token = cursor.peek()
        name = cursor.column_name()
        _refuse_repeated(cursor, token, name, (n for n, _ in found))
        _refuse_unfit(cursor, token, name, (n for n, _ in found))
        found.append((name, token))
        more = cursor.more()
    return tuple(found)


def _refuse_repeated(cursor: Cursor, token: Token, name: str, earlier: Iterable[str]) -> None:
    if name.lower() in {e.lower() for e in earlier}:
        raise cursor.error_at(token, f'column "{name}" is given twice')


def _refuse_unfit(cursor: Cursor, token: Token, name: str, earlier: Iterable[str]) -> None:
    """Refuse a column that no table can have, or not beside the earlier ones; fields of structures are judged by their type."""
    fault = name_fault([ColumnType(each, StringType()) for each in (*earlier, name)], "the table")
    if fault is not None:
        raise StatementError(
            fault.message,
            sql=cursor.sql,
            start=token.start,
            end_exclusive=token.end + 1,
            code=fault.code,
            detail=fault.detail,
            hint="leave it out, or rename it upstream",
        )


def _within(cursor: Cursor, key: tuple[tuple[str, Token], ...], columns: tuple[DeclaredColumn, ...]) -> tuple[str, ...]:
    """The key's columns as the column list, if there is one, spells them."""
    spelt = {c.name.lower(): c.name for c in columns}
    for name, token in key:
        if columns and name.lower() not in spelt:
            hint = f"the columns are {', '.join(c.name for c in columns)}"
            raise cursor.error_at(token, f'key column "{name}" is not in the column list', hint=hint)
    return tuple(spelt.get(name.lower(), name) for name, _ in key)
