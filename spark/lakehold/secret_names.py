"""Options whose values are secrets, and statements as errors show them: without such values, because errors end up in logs."""

from __future__ import annotations

import re

SECRET_NAME = re.compile(
    r"password|passphrase|secret|credential|jaas|keystore[._]key$|private[._]key|user[._]info|(^|[._])token$"
)
"""Matches the name of an option whose value is a secret: lowercase, with `_` for spaces."""

URL_PASSWORD = re.compile(r"\w[\w+.-]*://[^/@\s]*:[^/@\s]+@")
"""Matches an address with a password, also among several addresses."""

_QUOTED = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|`[^`]*`|(?P<value>'(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.|"")*"?)""", re.DOTALL
)
_NAME_BEFORE = re.compile(r"""((?:[\w."`]+\s+){0,3}[\w."`]+)\s*(=?)\s*\Z""")
_LONGEST_NAME = 120
"""Characters before a value in which the name of its option is looked for."""


def without_secrets(sql: str, start: int, end_exclusive: int) -> str:
    """Return the part of a script between two offsets, with as many asterisks for each secret in it."""
    text = sql
    for found in _QUOTED.finditer(sql):
        if found.start() >= end_exclusive:
            break
        value = found["value"]
        if value and found.end() > start and (URL_PASSWORD.search(value) or _is_secret(sql, found.start())):
            text = text[: found.start()] + re.sub(r"[^\n]", "*", value) + text[found.end() :]
    return text[start:end_exclusive]


def _is_secret(sql: str, start: int) -> bool:
    """Return whether the value at `start` follows the name of a secret option; the name after SECRET may be shown."""
    before = _NAME_BEFORE.search(sql[max(0, start - _LONGEST_NAME) : start])
    if before is None:
        return False
    words = before[1].lower().split()
    is_reference = words[-1] == "secret" and not before[2]
    return not is_reference and SECRET_NAME.search(re.sub(r'["`]', "", "_".join(words))) is not None
