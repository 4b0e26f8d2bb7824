"""Parsing the envelope of changes: `ENVELOPE UPSERT | DEBEZIUM | HISTORY (KEY (a, b))`."""

from __future__ import annotations

from lakehold.sql.text.cursor import Cursor
from lakehold.subscribe.statement import DebeziumEnvelope, HistoryEnvelope, UpsertEnvelope


def parse_changes_envelope(cursor: Cursor) -> UpsertEnvelope | DebeziumEnvelope:
    """Parse what follows ENVELOPE in CHANGES."""
    envelope = cursor.choose("UPSERT", "DEBEZIUM")
    key = _parse_in_parentheses(cursor)
    return UpsertEnvelope(key) if envelope == "UPSERT" else DebeziumEnvelope(key)


def parse_envelope(cursor: Cursor) -> UpsertEnvelope | DebeziumEnvelope | HistoryEnvelope:
    """Parse what follows ENVELOPE in SUBSCRIBE."""
    match cursor.choose("UPSERT", "DEBEZIUM", "HISTORY"):
        case "UPSERT":
            return UpsertEnvelope(_parse_in_parentheses(cursor))
        case "DEBEZIUM":
            return DebeziumEnvelope(_parse_in_parentheses(cursor))
        case _:
            return _parse_history(cursor)


def _parse_in_parentheses(cursor: Cursor) -> tuple[str, ...]:
    """Parse `(KEY (a, b))`."""
    cursor.expect_symbol("(")
    cursor.expect("KEY")
    key = parse_key(cursor)
    cursor.expect_symbol(")")
    return key


def _parse_history(cursor: Cursor) -> HistoryEnvelope:
    """Parse `(KEY (a, b)) [TRACK (c) | TRACK ALL EXCEPT (c)]`."""
    key = _parse_in_parentheses(cursor)
    if not cursor.accept("TRACK"):
        return HistoryEnvelope(key)
    excepts = cursor.accept("ALL", "EXCEPT")
    first = cursor.peek()
    columns = parse_key(cursor)
    repeated = {name.lower() for name in key} & {name.lower() for name in columns}
    if repeated:
        message = f"column {min(repeated)} is in the key, whose values never change"
        raise cursor.error_at(first, message, last=cursor.last, hint="leave it out of TRACK")
    return HistoryEnvelope(key, untracked=columns) if excepts else HistoryEnvelope(key, columns)


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
