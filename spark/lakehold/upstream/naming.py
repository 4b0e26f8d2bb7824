"""Names as statements for a captured database write them: quoted where they must be. Pure."""

from __future__ import annotations

import re

from lakehold.definitions import ConnectionType

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


def identifier_text(name: str, database: ConnectionType) -> str:
    """One name."""
    if _PLAIN.fullmatch(name):
        return name
    quote = '"' if database is ConnectionType.POSTGRES else "`"
    return f"{quote}{name.replace(quote, 2 * quote)}{quote}"


def table_text(upstream: str, database: ConnectionType) -> str:
    """`schema.table`, each of them."""
    return ".".join(identifier_text(part, database) for part in upstream.split(".", 1))
