"""Parsing the envelope of changes: `ENVELOPE UPSERT | DEBEZIUM (KEY (a, b))`."""

from __future__ import annotations

from lakehold.sql.cursor import Cursor
from lakehold.subscribe.statement import DebeziumEnvelope, UpsertEnvelope


def parse_envelope(cursor: Cursor) -> UpsertEnvelope | DebeziumEnvelope:
    """Parse what follows ENVELOPE."""
    envelope = cursor.choose("UPSERT", "DEBEZIUM")
    cursor.expect_symbol("(")
    cursor.expect("KEY")
    key = parse_key(cursor)
    cursor.expect_symbol(")")
    return UpsertEnvelope(key) if envelope == "UPSERT" else DebeziumEnvelope(key)


def parse_key(cursor: Cursor) -> tuple[str, ...]:
    """Parse `(a, b)`, the columns of a key."""
    cursor.expect_symbol("(")
    key: list[str] = []
    more = True
    while more:
        token = cursor.peek()
        name = cursor.column_name()
        if name.lower() in {k.lower() for k in key}:
            raise cursor.error_at(token, f'column "{name}" is given twice')
        key.append(name)
        more = cursor.more()
    return tuple(key)
