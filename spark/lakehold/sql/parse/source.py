"""Parsing `CREATE SOURCE`, one function for each production."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lakehold.definitions import ConnectionType, Format, FormatType, OptionValue, Source
from lakehold.sql.parse.capture import Database, Kafka, capture_of, parse_database, parse_into
from lakehold.sql.parse.materialize_words import IN_SOURCE
from lakehold.sql.statements import CreateSource
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.options import SOURCE, parse_options

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""The names that Kafka allows."""
_VIA = "VIA CONNECT CONNECTION"
_INTO = "INTO KAFKA CONNECTION"
_TRANSACTIONS = "TRANSACTION METADATA TOPIC"
_OF_DATABASES = "it belongs to FROM POSTGRES, FROM MYSQL and FROM MARIADB"
_DATABASES = {
    "POSTGRES CONNECTION": ConnectionType.POSTGRES,
    "MYSQL CONNECTION": ConnectionType.MYSQL,
    "MARIADB CONNECTION": ConnectionType.MARIADB,
}
_CLAUSES = ("FROM", _VIA, _INTO, "FORMAT", _TRANSACTIONS, "WITH")


@dataclass(frozen=True)
class _Origin:
    """The clause after FROM: topics of a Kafka connection, a directory, or a database."""

    connection: str | None = None
    path: str | None = None
    topics: tuple[str, ...] = ()
    database: Database | None = None


def parse_source(cursor: Cursor) -> CreateSource:
    """Parse `[IF NOT EXISTS] name`, then FROM and the other clauses in any order."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.object_name("a source name")
    origin: _Origin | None = None
    connect: str | None = None
    into: Kafka | None = None
    message_format: Format | None = None
    transaction_topic: str | None = None
    options: dict[str, OptionValue] = {}
    first = cursor.position

    def fits(clause: str) -> bool:
        return origin is None or clause not in _foreign(origin)

    for clause in cursor.clauses(*_CLAUSES, fits=fits, elsewhere=IN_SOURCE):
        match clause:
            case "FROM":
                origin = _origin(cursor)
            case "VIA CONNECT CONNECTION":
                connect = cursor.object_name("a connection name")
            case "INTO KAFKA CONNECTION":
                into = parse_into(cursor)
            case "FORMAT":
                message_format = _format(cursor)
            case "TRANSACTION METADATA TOPIC":
                cursor.accept_symbol("=")
                transaction_topic = cursor.text("a topic")
            case _:
                options = parse_options(cursor, SOURCE)
    if origin is None:
        raise cursor.error("FROM")
    given = {_VIA: connect is not None, _INTO: into is not None, _TRANSACTIONS: transaction_topic is not None}
    _check_fit(cursor, first, origin, given)
    if message_format is None:
        raise cursor.error("FORMAT")
    return CreateSource(_source(name, message_format, origin, connect, into, transaction_topic, options), if_not_exists)


def _source(  # noqa: PLR0913 - one for each clause
    name: str,
    message_format: Format,
    origin: _Origin,
    connect: str | None,
    into: Kafka | None,
    transaction_topic: str | None,
    options: dict[str, OptionValue],
) -> Source:
    if origin.database is None or connect is None or into is None:
        return Source(name, message_format, origin.connection, origin.path, origin.topics, transaction_topic, options)
    capture = capture_of(name, origin.database, connect, into)
    return Source(
        name,
        message_format,
        into.connection,
        transaction_topic=capture.transaction_topic,
        options=options,
        capture=capture,
    )


def _check_fit(cursor: Cursor, first: int, origin: _Origin, given: Mapping[str, bool]) -> None:
    """Check that the `given` clauses fit the origin; `first` is the position at which the clauses begin.

    Raises:
        StatementError: A clause is missing, or belongs to another kind of origin.
    """
    is_database = origin.database is not None
    if is_database and not (given[_VIA] and given[_INTO]):
        missing = _INTO if given[_VIA] else _VIA
        raise cursor.error(
            missing, hint=f"a connector captures the database: write {missing} and the name of a connection"
        )
    clause = next((clause for clause in _foreign(origin) if given[clause]), None)
    if clause is None:
        return
    hint = "the connector of a database writes transaction metadata to its own topic" if is_database else _OF_DATABASES
    cursor.rewind(first)
    cursor.take_until(lambda: cursor.at_words(*clause.split()))
    last = cursor.peek(len(clause.split()) - 1)
    raise cursor.error_at(cursor.peek(), f"{clause} does not belong to this source", last=last, hint=hint)


def _foreign(origin: _Origin) -> tuple[str, ...]:
    """Return the clauses that belong to other kinds of origins."""
    return (_TRANSACTIONS,) if origin.database is not None else (_VIA, _INTO)


def _origin(cursor: Cursor) -> _Origin:
    """Parse `KAFKA CONNECTION c (TOPICS …)`, `FILES 'path'`, or `POSTGRES | MYSQL | MARIADB CONNECTION c [(…)]`."""
    match cursor.choose("KAFKA CONNECTION", "FILES", *_DATABASES):
        case "FILES":
            return _Origin(path=cursor.filled_text("a directory"))
        case "KAFKA CONNECTION":
            return _Origin(cursor.object_name("a connection name"), topics=_topics(cursor))
        case phrase:
            return _Origin(database=parse_database(cursor, _DATABASES[phrase]))


def _topics(cursor: Cursor) -> tuple[str, ...]:
    """Parse `(TOPIC 't')` or `(TOPICS ('a', 'b'))`."""
    cursor.expect_symbol("(")
    many = cursor.choose("TOPICS", "TOPIC") == "TOPICS"
    cursor.accept_symbol("=")
    topics = _topic_list(cursor) if many else (_topic(cursor),)
    cursor.expect_symbol(")")
    return topics


def _topic(cursor: Cursor) -> str:
    token = cursor.peek()
    topic = cursor.filled_text("a topic")
    if not _TOPIC.fullmatch(topic):
        hint = "write each topic by its full name: letters, digits and . _ -"
        raise cursor.error_at(token, f"'{topic}' is no name of a topic", hint=hint)
    return topic


def _topic_list(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect_symbol("(")
    topics: list[str] = []
    more = True
    while more:
        token = cursor.peek()
        topic = _topic(cursor)
        if topic in topics:
            raise cursor.error_at(token, f"topic '{topic}' is given twice")
        topics.append(topic)
        more = cursor.more()
    return tuple(topics)


def _format(cursor: Cursor) -> Format:
    """Parse `AVRO USING SCHEMA REGISTRY CONNECTION r` or `JSON`."""
    if cursor.choose("AVRO", "JSON") == "JSON":
        return Format(FormatType.JSON)
    cursor.expect(
        "USING", "SCHEMA", "REGISTRY", "CONNECTION", hint="write AVRO USING SCHEMA REGISTRY CONNECTION and its name"
    )
    return Format(FormatType.AVRO, cursor.object_name("a connection name"))
