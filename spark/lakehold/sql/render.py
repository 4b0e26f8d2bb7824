"""Definitions -> SQL: what SHOW CREATE answers, and how two definitions are compared. The inverse of `parse_create`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakehold.definitions import (
    Connection,
    ConnectionType,
    Definition,
    Envelope,
    Format,
    FormatType,
    OptionValue,
    Secret,
    Source,
    Table,
)
from lakehold.sql.cursor import NOT_A_NAME
from lakehold.sql.options import spoken

_ENVELOPES = {
    Envelope.UPSERT: "UPSERT",
    Envelope.DEBEZIUM_UPSERT: "DEBEZIUM UPSERT",
    Envelope.DEBEZIUM: "DEBEZIUM",
}
_OBJECT_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def create_statement(definition: Definition) -> str:
    """The statement that makes `definition`, one clause a line; secrets appear by name."""
    match definition:
        case Connection(name=name):
            head = f"CREATE CONNECTION {_object(name)}"
        case Source(name=name):
            head = f"CREATE SOURCE {_object(name)}"
        case Table(namespace=namespace, name=name):
            head = f"CREATE TABLE {_object(namespace)}.{_object(name)}"
    return "\n  ".join([head, *clauses(definition).values()])


def differences(existing: Definition, wanted: Definition) -> tuple[tuple[str, str], ...]:
    """The clauses in which two definitions of one name differ: as they are and as wanted; "nothing" for none."""
    old, new = clauses(existing), clauses(wanted)
    both = ((old.get(c, "nothing"), new.get(c, "nothing")) for c in dict.fromkeys((*old, *new)))
    return tuple((o, n) for o, n in both if o != n)


def clauses(definition: Definition) -> dict[str, str]:
    """The clauses after the name, in the order of the reference."""
    match definition:
        case Connection(type=connection_type, options=options):
            kind = "KAFKA" if connection_type is ConnectionType.KAFKA else "SCHEMA REGISTRY"
            return {"to": f"TO {kind} {options_text(options)}"}
        case Source():
            return _source_clauses(definition)
        case Table():
            return _table_clauses(definition)


def options_text(options: Mapping[str, OptionValue]) -> str:
    """`(NAME 'text', NAME 1, NAME SECRET 'NAME')`, sorted by name: the order options are given in means nothing."""
    return f"({', '.join(f'{spoken(n)} {_value(options[n])}' for n in sorted(options))})"


def _source_clauses(source: Source) -> dict[str, str]:
    found = {"from": f"FROM FILES {_text(source.path or '')}"}
    if source.connection is not None:
        topics = ", ".join(_text(t) for t in source.topics)
        found["from"] = f"FROM KAFKA CONNECTION {_object(source.connection)} (TOPICS ({topics}))"
    found["format"] = _format(source.format)
    if source.transaction_topic is not None:
        found["transaction"] = f"TRANSACTION METADATA TOPIC {_text(source.transaction_topic)}"
    if source.options:
        found["with"] = f"WITH {options_text(source.options)}"
    return found


def _table_clauses(table: Table) -> dict[str, str]:
    found: dict[str, str] = {}
    if table.columns:
        found["columns"] = f"({', '.join(f'{_column(c.name)} {c.type}' for c in table.columns)})"
    found["from"] = f"FROM SOURCE {_object(table.source)} (TOPIC {_text(table.topic)})"
    if table.key:
        found["key"] = f"KEY ({', '.join(_column(k) for k in table.key)})"
    found["envelope"] = f"ENVELOPE {_ENVELOPES[table.envelope]}"
    if table.options:
        found["with"] = f"WITH {options_text(table.options)}"
    return found


def _format(message_format: Format) -> str:
    if message_format.type is FormatType.JSON or message_format.registry is None:
        return "FORMAT JSON"
    return f"FORMAT AVRO USING SCHEMA REGISTRY CONNECTION {_object(message_format.registry)}"


def _value(value: OptionValue) -> str:
    match value:
        case Secret(name):
            return f"SECRET {_text(name)}"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case str():
            return _text(value)


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _object(name: str) -> str:
    return name if _OBJECT_NAME.fullmatch(name) and name.upper() not in NOT_A_NAME else _quoted(name)


def _column(name: str) -> str:
    return name if _COLUMN_NAME.fullmatch(name) else _quoted(name)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
