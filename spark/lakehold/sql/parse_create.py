"""`CREATE CONNECTION`, `CREATE SOURCE` and `CREATE TABLE … FROM SOURCE`, one function a production."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import Token

from lakehold.definitions import (
    Connection,
    ConnectionType,
    DeclaredColumn,
    Envelope,
    Format,
    FormatType,
    OptionValue,
    Source,
    Table,
)
from lakehold.sql.column_types import parse_type
from lakehold.sql.cursor import Cursor
from lakehold.sql.names import new_table_name
from lakehold.sql.options import KAFKA, SCHEMA_REGISTRY, SOURCE, TABLE, parse_options
from lakehold.sql.statements import CreateConnection, CreateSource, CreateTable

_ENVELOPES = {
    "UPSERT": Envelope.UPSERT,
    "DEBEZIUM UPSERT": Envelope.DEBEZIUM_UPSERT,
    "DEBEZIUM": Envelope.DEBEZIUM,
}


def parse_connection(cursor: Cursor) -> CreateConnection:
    """`[IF NOT EXISTS] name TO KAFKA | SCHEMA REGISTRY (options)`."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.object_name("a connection name")
    cursor.expect("TO")
    if cursor.choose("KAFKA", "SCHEMA REGISTRY") == "KAFKA":
        connection = Connection(name, ConnectionType.KAFKA, parse_options(cursor, KAFKA))
    else:
        connection = Connection(name, ConnectionType.SCHEMA_REGISTRY, parse_options(cursor, SCHEMA_REGISTRY))
    cursor.expect_end()
    return CreateConnection(connection, if_not_exists)


def parse_source(cursor: Cursor) -> CreateSource:
    """`[IF NOT EXISTS] name`, then FROM, FORMAT, TRANSACTION METADATA TOPIC and WITH in any order."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.object_name("a source name")
    origin: tuple[str | None, str | None, tuple[str, ...]] | None = None
    message_format: Format | None = None
    transaction_topic: str | None = None
    options: dict[str, OptionValue] = {}
    for clause in cursor.clauses("FROM", "FORMAT", "TRANSACTION METADATA TOPIC", "WITH"):
        match clause:
            case "FROM":
                origin = _origin(cursor)
            case "FORMAT":
                message_format = _format(cursor)
            case "TRANSACTION METADATA TOPIC":
                cursor.accept_symbol("=")
                transaction_topic = cursor.text("a topic")
            case _:
                options = parse_options(cursor, SOURCE)
    if origin is None:
        raise cursor.error("FROM")
    if message_format is None:
        raise cursor.error("FORMAT")
    connection, path, topics = origin
    source = Source(name, message_format, connection, path, topics, transaction_topic, options)
    return CreateSource(source, if_not_exists)


def _origin(cursor: Cursor) -> tuple[str | None, str | None, tuple[str, ...]]:
    """`KAFKA CONNECTION c (TOPICS …)` or `FILES 'path'`: connection, path and topics."""
    if cursor.choose("KAFKA CONNECTION", "FILES") == "FILES":
        return None, _not_empty(cursor, "a directory"), ()
    return cursor.object_name("a connection name"), None, _topics(cursor)


def _topics(cursor: Cursor) -> tuple[str, ...]:
    """`(TOPIC 't')` or `(TOPICS ('a', 'b'))`."""
    cursor.expect_symbol("(")
    many = cursor.choose("TOPICS", "TOPIC") == "TOPICS"
    cursor.accept_symbol("=")
    topics = _topic_list(cursor) if many else (_not_empty(cursor, "a topic"),)
    cursor.expect_symbol(")")
    return topics


def _topic_list(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect_symbol("(")
    topics: list[str] = []
    more = True
    while more:
        token = cursor.peek()
        topic = _not_empty(cursor, "a topic")
        if topic in topics:
            raise cursor.error_at(token, f"topic '{topic}' is given twice")
        topics.append(topic)
        more = cursor.more()
    return tuple(topics)


def _not_empty(cursor: Cursor, what: str) -> str:
    token = cursor.peek()
    text = cursor.text(what)
    if not text.strip():
        raise cursor.error_at(token, f"expected {what}, found an empty string")
    return text


def _format(cursor: Cursor) -> Format:
    """`AVRO USING SCHEMA REGISTRY CONNECTION r` or `JSON`."""
    if cursor.choose("AVRO", "JSON") == "JSON":
        return Format(FormatType.JSON)
    cursor.expect("USING", "SCHEMA", "REGISTRY", "CONNECTION")
    return Format(FormatType.AVRO, cursor.object_name("a connection name"))


def parse_table(cursor: Cursor) -> CreateTable | None:
    """`[IF NOT EXISTS] namespace.table [(columns)]`, then FROM SOURCE, KEY, ENVELOPE and WITH in any order.

    None when the statement is Spark's own CREATE TABLE.
    """
    if not _is_fed(cursor):
        return None
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    namespace, name = new_table_name(cursor)
    columns = _columns(cursor) if cursor.accept_symbol("(") else ()
    feed: tuple[str, str] | None = None
    key: tuple[tuple[str, Token], ...] = ()
    envelope: Envelope | None = None
    options: dict[str, OptionValue] = {}
    for clause in cursor.clauses("FROM SOURCE", "KEY", "ENVELOPE", "WITH"):
        match clause:
            case "FROM SOURCE":
                feed = _feed(cursor)
            case "KEY":
                key = _key(cursor)
            case "ENVELOPE":
                envelope = _ENVELOPES[cursor.choose(*_ENVELOPES)]
            case _:
                options = parse_options(cursor, TABLE)
    if feed is None:
        raise cursor.error("FROM SOURCE")
    if envelope is None:
        raise cursor.error("ENVELOPE")
    source, topic = feed
    key_columns = _within(cursor, key, columns)
    return CreateTable(Table(namespace, name, source, topic, envelope, columns, key_columns, options), if_not_exists)


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
        columns.append(DeclaredColumn(name, parse_type(cursor)))
        more = cursor.more()
    return tuple(columns)


def _feed(cursor: Cursor) -> tuple[str, str]:
    """`s (TOPIC 't')`: source and topic."""
    source = cursor.object_name("a source name")
    cursor.expect_symbol("(")
    cursor.expect("TOPIC")
    cursor.accept_symbol("=")
    topic = _not_empty(cursor, "a topic")
    cursor.expect_symbol(")")
    return source, topic


def _key(cursor: Cursor) -> tuple[tuple[str, Token], ...]:
    """`(a, b)`: the columns, and where each stands."""
    cursor.expect_symbol("(")
    found: list[tuple[str, Token]] = []
    more = True
    while more:
        token = cursor.peek()
        name = cursor.column_name()
        _refuse_repeated(cursor, token, name, (n for n, _ in found))
        found.append((name, token))
        more = cursor.more()
    return tuple(found)


def _refuse_repeated(cursor: Cursor, token: Token, name: str, earlier: Iterable[str]) -> None:
    if name.lower() in {e.lower() for e in earlier}:
        raise cursor.error_at(token, f'column "{name}" is given twice')


def _within(cursor: Cursor, key: tuple[tuple[str, Token], ...], columns: tuple[DeclaredColumn, ...]) -> tuple[str, ...]:
    """The key's columns as the column list, if there is one, spells them."""
    spelt = {c.name.lower(): c.name for c in columns}
    for name, token in key:
        if columns and name.lower() not in spelt:
            hint = f"the columns are {', '.join(c.name for c in columns)}"
            raise cursor.error_at(token, f'key column "{name}" is not in the column list', hint=hint)
    return tuple(spelt.get(name.lower(), name) for name, _ in key)
