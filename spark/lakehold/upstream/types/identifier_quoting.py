"""Quoting of names in the statements that lakehold suggests for a captured database. Pure."""

from __future__ import annotations

import re

from lakehold.definitions import ConnectionType

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


def identifier_text(name: str, database: ConnectionType) -> str:
    """Quote a name, unless the database takes it without quotes."""
    if _PLAIN.fullmatch(name):
        return name
    quote = '"' if database is ConnectionType.POSTGRES else "`"
    return f"{quote}{name.replace(quote, 2 * quote)}{quote}"


def table_text(upstream: str, database: ConnectionType) -> str:
    """Quote the schema and the name of a table `schema.table`."""
    return ".".join(identifier_text(part, database) for part in upstream.split(".", 1))
