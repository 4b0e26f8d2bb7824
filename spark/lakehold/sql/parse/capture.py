"""Parsing `FROM POSTGRES | MYSQL | MARIADB CONNECTION … VIA CONNECT … INTO KAFKA …`: a source with its own connector.

The source *captures* a database: lakehold creates a Debezium connector in Kafka Connect, which writes the changes to topics.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import Token

from lakehold.definitions import Capture, ConnectionType, OptionValue
from lakehold.sql.text.cursor import Cursor
from lakehold.sql.text.options import INTO_KAFKA, MYSQL_CAPTURE, POSTGRES_CAPTURE, OptionSet, parse_options, spoken

_PATTERNS = {
    "slot": re.compile(r"[a-z0-9_]{1,63}"),
    # Debezium sends the name without quotes, as part of a list that PostgreSQL parses.
    "publication": re.compile(r"""[^A-Z\s,'"\\]{1,63}"""),
    "topic_prefix": re.compile(r"[A-Za-z0-9._-]{1,180}"),
}
_NOT_OF_A_NAME = re.compile(r"[^a-z0-9_]")
_ALLOWED = {
    "slot": "up to 63 lowercase letters, digits and underscores",
    "publication": "up to 63 characters without uppercase letters, spaces, commas and quotes",
    "topic_prefix": "up to 180 letters, digits, dots, hyphens and underscores",
}
_NOT_ALLOWED = {
    "slot": _NOT_OF_A_NAME,
    "publication": re.compile(r"""[\s,'"\\]"""),
    "topic_prefix": re.compile(r"[^A-Za-z0-9._-]"),
}
_OPTIONS = {
    ConnectionType.POSTGRES: POSTGRES_CAPTURE,
    ConnectionType.MYSQL: MYSQL_CAPTURE,
    ConnectionType.MARIADB: MYSQL_CAPTURE,
}


@dataclass(frozen=True)
class Database:
    """The clause `POSTGRES | MYSQL | MARIADB CONNECTION c [(…)]`."""

    type: ConnectionType
    connection: str
    options: Mapping[str, OptionValue]


@dataclass(frozen=True)
class Kafka:
    """The clause `KAFKA CONNECTION c [(…)]` after INTO."""

    connection: str
    options: Mapping[str, OptionValue]


def parse_database(cursor: Cursor, database: ConnectionType) -> Database:
    """Parse `c [(PUBLICATION 'p', SLOT 's')]` or `c [(SERVER ID n)]`."""
    connection = cursor.object_name("a connection name")
    return Database(database, connection, _checked(cursor, _OPTIONS[database]))


def parse_into(cursor: Cursor) -> Kafka:
    """Parse `c [(TOPIC PREFIX 'p', PARTITIONS n)]`."""
    connection = cursor.object_name("a connection name")
    return Kafka(connection, _checked(cursor, INTO_KAFKA))


def capture_of(source: str, database: Database, connect: str, kafka: Kafka) -> Capture:
    """Build the capture of a source from its clauses; names that the clauses leave out follow from that of the source.

    Args:
        source: Name of the source.
        database: The clause FROM.
        connect: Name of the connection to Kafka Connect.
        kafka: The clause INTO.
    """
    plain = _NOT_OF_A_NAME.sub("_", source.lower())
    is_postgres = database.type is ConnectionType.POSTGRES
    prefix = str(kafka.options.get("topic_prefix", plain))
    return Capture(
        database=database.type,
        connection=database.connection,
        connect=connect,
        topic_prefix=prefix,
        publication=str(database.options.get("publication", f"lakehold_{plain}"[:63])) if is_postgres else None,
        slot=str(database.options.get("slot", f"lakehold_{plain}"[:63])) if is_postgres else None,
        server_id=None
        if is_postgres
        else int(str(database.options.get("server_id", zlib.crc32(prefix.encode()) or 1))),
        partitions=int(str(kafka.options.get("partitions", 1))),
    )


def parse_upstream_table(cursor: Cursor) -> str:
    """Parse `'schema.table'`, the name of a table in the database."""
    token = cursor.peek()
    hint = "write it as in TABLE 'public.orders'; for MySQL and MariaDB write the database before the point"
    name = cursor.text("a table as 'schema.table'", hint)
    schema, _, table = name.partition(".")
    if not schema.strip() or not table.strip():
        raise cursor.error_at(token, f"expected a table as 'schema.table', found '{name}'", hint=hint)
    return name


def _checked(cursor: Cursor, options: OptionSet) -> dict[str, OptionValue]:
    """Parse the options in parentheses, if there are any, and check names against what the systems upstream allow."""
    opening: Token = cursor.peek()
    if cursor.source_text(opening) != "(":
        bare = next((option for option in map(spoken, options.known) if cursor.at_words(*option.split())), None)
        if bare is not None:
            raise cursor.error('"("', hint=f"options go in parentheses: write ({bare} …)")
        return {}
    found = parse_options(cursor, options)
    for name, value in found.items():
        pattern = _PATTERNS.get(name)
        if pattern is None or pattern.fullmatch(str(value)):
            continue
        close = _NOT_ALLOWED[name].sub("_", str(value) if name == "topic_prefix" else str(value).lower())
        hint = f"write {spoken(name)} '{close}', or leave it out: it is then named after the source"
        hint = hint if pattern.fullmatch(close) else "leave it out: it is then named after the source"
        message = f"{spoken(name)} takes {_ALLOWED[name]}, found '{value}'"
        raise cursor.error_at(opening, message, last=cursor.last, hint=hint)
    return found
