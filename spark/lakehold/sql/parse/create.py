"""Parsing `CREATE CONNECTION` and `CREATE TABLE … FROM SOURCE`, one function for each production."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyiceberg.types import StringType
from sqlglot import Token

from lakehold.definitions import (
    Connection,
    DeclaredColumn,
    Envelope,
    Included,
    Metadata,
    OptionValue,
    Table,
)
from lakehold.errors import StatementError
from lakehold.sql.parse.capture import parse_upstream_table
from lakehold.sql.parse.materialize_words import IN_FEED
from lakehold.sql.statements import CreateConnection, CreateTable
from lakehold.sql.text.column_types import parse_type
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.layout import refused_format
from lakehold.sql.text.names import new_table_name, spark_table_reference
from lakehold.sql.text.options import CONNECTIONS, TABLE, parse_options
from lakehold.table_layout import FORMAT_VERSION, NEWEST_FORMAT, PARTITIONED_BY
from lakehold.tables.column_names import name_fault
from lakehold.tables.column_types import ColumnType

_ENVELOPES = {envelope.sql: envelope for envelope in Envelope}
_METADATA = {each.value.upper(): each for each in Metadata}

_SYSTEMS = {connection_type.value.replace("-", " ").upper(): connection_type for connection_type in CONNECTIONS}


def parse_connection(cursor: Cursor) -> CreateConnection:
    """Parse `[IF NOT EXISTS] name TO KAFKA | SCHEMA REGISTRY | POSTGRES | MYSQL | MARIADB | CONNECT (options)`."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.object_name("a connection name")
    cursor.expect("TO")
    connection_type = _SYSTEMS[cursor.choose(*_SYSTEMS)]
    connection = Connection(name, connection_type, parse_options(cursor, CONNECTIONS[connection_type]))
    cursor.expect_end()
    return CreateConnection(connection, if_not_exists)


def parse_table(cursor: Cursor) -> CreateTable | None:
    """Parse `[IF NOT EXISTS] namespace.table [(columns)]`, then FROM SOURCE, KEY, INCLUDE, ENVELOPE and WITH in any order.

    None for a CREATE TABLE of Spark's.
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
    with_token = cursor.peek()
    include: tuple[Included, ...] = ()
    for clause in cursor.clauses("FROM SOURCE", "KEY", "INCLUDE", "ENVELOPE", "WITH"):
        match clause:
            case "FROM SOURCE":
                feed = _feed(cursor)
            case "KEY":
                key = _key(cursor)
            case "INCLUDE":
                include = _include(cursor, columns)
            case "ENVELOPE":
                first = cursor.peek()
                envelope = _ENVELOPES[cursor.choose(*_ENVELOPES)], first, cursor.last
            case _:
                with_token = cursor.peek()
                options = parse_options(cursor, TABLE)
    if feed is None:
        raise cursor.error("FROM SOURCE")
    if envelope is None:
        raise cursor.error("ENVELOPE")
    source, topic, upstream = feed
    if upstream is not None and not envelope[0].wraps_rows:
        raise _captured_envelope_error(cursor, *envelope)
    if key and not envelope[0].has_keys:
        message = f"rows of ENVELOPE {envelope[0].sql} have no key"
        hint = "leave KEY out; INCLUDE KEY adds the message key's columns"
        raise cursor.error_at(key[0][1], message, last=key[-1][1], hint=hint)
    _check_layout(cursor, with_token, envelope[0], options)
    key_columns = _within(cursor, key, columns)
    table = Table(namespace, name, source, topic, envelope[0], columns, key_columns, options, upstream, include)
    return CreateTable(table, if_not_exists)


def _check_layout(cursor: Cursor, token: Token, envelope: Envelope, options: Mapping[str, OptionValue]) -> None:
    """Refuse buckets beside partitions, and a format that lacks what the envelope needs."""
    if PARTITIONED_BY in options and "buckets" in options:
        hint = "write the buckets as one of the partitions: PARTITIONED BY (…, bucket(8, column))"
        raise cursor.error_at(token, "PARTITIONED BY takes the place of BUCKETS", hint=hint)
    if envelope.has_positions and options.get(FORMAT_VERSION, NEWEST_FORMAT) != NEWEST_FORMAT:
        raise refused_format(
            cursor,
            token,
            f"ENVELOPE {envelope.sql}",
            detail="Rows that a re-snapshot does not bring are found by the commit that last wrote each row. "
            "Format version 3 keeps it (row lineage), format version 2 does not.",
            hint="leave FORMAT VERSION out; for readers of format version 2, keep a copy of the table: "
            "CREATE MATERIALIZED VIEW … KEY (…) WITH (FORMAT VERSION = 2) AS SELECT * FROM …",
        )


def _is_fed(cursor: Cursor) -> bool:
    """Return whether FROM SOURCE, INCLUDE or ENVELOPE comes after the name, outside of parentheses and before any query.

    Spark's CREATE TABLE has none of these words there.
    """
    at = cursor.position
    cursor.accept("IF", "NOT", "EXISTS")
    spark_table_reference(cursor)
    depth, offset = 0, cursor.position - at
    cursor.rewind(at)
    while text := cursor.source_text(cursor.peek(offset)):
        depth += (text == "(") - (text == ")")
        word = cursor.word(offset) if depth == 0 else ""
        if word in ("AS", "SELECT"):
            return False
        if word in ("ENVELOPE", "INCLUDE") or (word == "FROM" and cursor.word(offset + 1) == "SOURCE"):
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
    """Parse `s (TOPIC 't')` or `s (TABLE 'schema.table')`.

    Returns:
        The source, the topic (empty for the second form) and the upstream table (None for the first form).
    """
    source = cursor.object_name("a source name")
    cursor.expect_symbol("(", hint=f"write FROM SOURCE {source} (TABLE 'schema.table'), or (TOPIC 'topic')")
    kind = cursor.choose("TOPIC", "TABLE", elsewhere=IN_FEED)
    cursor.accept_symbol("=")
    upstream = parse_upstream_table(cursor) if kind == "TABLE" else None
    topic = cursor.filled_text("a topic") if upstream is None else ""
    cursor.expect_symbol(")")
    return source, topic, upstream


def _include(cursor: Cursor, columns: tuple[DeclaredColumn, ...]) -> tuple[Included, ...]:
    """Parse `KEY [AS a], OFFSET, …`. The column list may name columns of a key, too, to declare their types."""
    found: list[Included] = []
    more = True
    while more:
        token = cursor.peek()
        what = _METADATA[cursor.choose(*_METADATA)]
        alias = None
        if cursor.accept("AS"):
            token = cursor.peek()
            alias = cursor.column_name()
        each = Included(what, alias)
        names = [*(i.name for i in found), *(c.name for c in columns if what is not Metadata.KEY)]
        _refuse_repeated(cursor, token, each.name, names, hint=f"write {what.value.upper()} AS and another name")
        _refuse_unfit(cursor, token, each.name, ())
        found.append(each)
        more = cursor.accept_symbol(",")
    return tuple(found)


def _captured_envelope_error(cursor: Cursor, envelope: Envelope, first: Token, last: Token) -> StatementError:
    return StatementError(
        f"ENVELOPE {envelope.sql} does not read a table of a captured database",
        sql=cursor.sql,
        start=first.start,
        end_exclusive=last.end + 1,
        code="envelope-captured",
        detail="Its connector writes Debezium's change events, which are no rows.",
        hint="write ENVELOPE DEBEZIUM, or ENVELOPE DEBEZIUM UPSERT, which needs no row from before a change",
    )


def _key(cursor: Cursor) -> tuple[tuple[str, Token], ...]:
    """Parse `(a, b)`, and return the columns with their tokens."""
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


def _refuse_repeated(cursor: Cursor, token: Token, name: str, earlier: Iterable[str], *, hint: str = "") -> None:
    if name.lower() in {e.lower() for e in earlier}:
        raise cursor.error_at(token, f'column "{name}" is given twice', hint=hint)


def _refuse_unfit(cursor: Cursor, token: Token, name: str, earlier: Iterable[str]) -> None:
    """Refuse a column name that a table cannot have, or not beside the earlier ones; `parse_type` checks nested fields."""
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
    """Return the columns of the key as the column list spells them, after checking that it has them.

    Without a column list the names stay as they are written in KEY.
    """
    spelt = {c.name.lower(): c.name for c in columns}
    for name, token in key:
        if columns and name.lower() not in spelt:
            hint = f"the columns are {', '.join(c.name for c in columns)}"
            raise cursor.error_at(token, f'key column "{name}" is not in the column list', hint=hint)
    return tuple(spelt.get(name.lower(), name) for name, _ in key)
