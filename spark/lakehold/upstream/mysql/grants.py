"""Reads the rights of a user from the grants that a server of MySQL or MariaDB lists. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_GRANT = re.compile(r"""GRANT (?P<rights>.+?) ON ([`"]?)(?P<database>.+?)\2\.([`"]?)(?P<table>.+?)\4 TO """)
_OF_COLUMNS = re.compile(r"[A-Z]+ \([^)]*\)")
WRITE = frozenset({"SELECT", "INSERT", "DELETE"})
"""The rights that requests through a signal table need."""
_EVERY_RIGHT = WRITE | {"CREATE", "DROP"}


def rights(grants: Sequence[str], database: str, table: str | None = None) -> frozenset[str]:
    """Return the rights on a whole database, or on a table in it, from the lines of SHOW GRANTS."""
    found: set[str] = set()
    for grant in filter(None, map(_GRANT.match, grants)):
        is_whole = grant["table"] == "*"
        is_about = (is_whole or grant["table"] == table) and re.fullmatch(_like(grant["database"]), database)
        if is_about or (is_whole and grant["database"] == "*"):
            found |= {right.strip() for right in _OF_COLUMNS.sub("", grant["rights"]).split(",")}
    return _EVERY_RIGHT if found & {"ALL PRIVILEGES", "ALL"} else frozenset(found)


def _like(pattern: str) -> str:
    """Return the regular expression of a name in a grant."""
    parts = re.findall(r"\\.|.", pattern)
    return "".join({"%": ".*", "_": "."}.get(part, re.escape(part[-1])) for part in parts)
