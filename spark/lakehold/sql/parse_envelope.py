"""Parsing the envelope of changes: `ENVELOPE UPSERT | DEBEZIUM (KEY (a, b))`."""

from __future__ import annotations

from lakehold.sql.cursor import Cursor
from lakehold.subscribe.statement import DebeziumEnvelope, UpsertEnvelope


def parse_envelope(cursor: Cursor) -> UpsertEnvelope | DebeziumEnvelope:
    """Parse what follows ENVELOPE."""
    envelope = cursor.choose("UPSERT", "DEBEZIUM")
    return UpsertEnvelope(_key(cursor)) if envelope == "UPSERT" else DebeziumEnvelope(_key(cursor))


def _key(cursor: Cursor) -> tuple[str, ...]:
    """Parse `(KEY (a, b))`."""
    cursor.expect_symbol("(")
    cursor.expect("KEY")
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
    cursor.expect_symbol(")")
    return tuple(key)
