"""Options whose values are secrets, and statements as errors show them: without such values, because errors end up in logs."""

from __future__ import annotations

import re

SECRET_NAME = re.compile(
    r"password|passphrase|secret|credential|jaas|keystore[._]key$|private[._]key|user[._]info|(^|[._])token$"
)
"""Matches the name of an option whose value is a secret: lowercase, with `_` for spaces."""

URL_PASSWORD = re.compile(r"\w[\w+.-]*://[^/@\s]*:[^/@\s]+@")
"""Matches an address with a password, also among several addresses."""

_VALUE = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|`[^`]*`
    |(?P<quoted>(?<!\w)[rR](?:'[^']*'?|"[^"]*"?)|'(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.|"")*"?)
    |=\s*(?P<bare>(?!--|/\*|[rR]['"])[^\s'"`,;()=][^\s,;()]*)""",
    re.DOTALL | re.VERBOSE,
)
"""Matches comments and quoted names, which hold no values, values in quotes, and words after `=`."""
_WORD = r"""(?:'[\w.-]+'|"[\w.-]+"|[\w.`-]+)"""
_NAME_BEFORE = re.compile(rf"""(?P<words>(?:{_WORD}\s+){{0,3}}{_WORD})\s*(?P<equals>=?)\s*\Z""")
"""Matches the name of an option before its value: up to four words, which may be in quotes."""
_LONGEST_NAME = 120
"""Characters before a value in which the name of its option is looked for."""
_REST_OF_SET = re.compile(r"[^;\n]*")


def without_secrets(sql: str, start: int, end_exclusive: int) -> str:
    """Return the part of a script between two offsets, with as many asterisks for each secret in it."""
    text = sql
    for found in _VALUE.finditer(sql):
        if found.start() >= end_exclusive:
            break
        place = found.lastgroup
        if place is not None:
            secret_start, secret_end = found.span(place)
            if not URL_PASSWORD.search(found[place]):
                secret_end = _secret_end(sql, secret_start, secret_end, is_bare=place == "bare")
            if secret_end > start:
                stars = re.sub(r"[^\n]", "*", sql[secret_start:secret_end])
                text = text[:secret_start] + stars + text[secret_end:]
    return text[start:end_exclusive]


def _secret_end(sql: str, start: int, end_exclusive: int, *, is_bare: bool) -> int:
    """Return where the secret ends that is the value at `start`; 0 if the value is none. The name after SECRET may be shown."""
    searched_from = max(0, start - _LONGEST_NAME)
    before = _NAME_BEFORE.search(sql[searched_from:start])
    if before is None:
        return 0
    words = before["words"].lower().split()
    is_reference = words[-1] == "secret" and not before["equals"]
    if is_reference or SECRET_NAME.search(re.sub(r"""["'`]""", "", "_".join(words))) is None:
        return 0
    if not is_bare:
        return end_exclusive
    if words[0] == "set" and (rest := _REST_OF_SET.match(sql, start)) is not None:
        return rest.end()
    # Elsewhere a word after `=` may be a column that is compared, but in a list of options it is a value.
    is_option = sql[: searched_from + before.start()].rstrip().endswith(("(", ","))
    value = sql[start:end_exclusive].lower()
    is_same_column = "." in value and value.rpartition(".")[2] == words[-1].rpartition(".")[2]
    return end_exclusive if is_option and value != "secret" and not is_same_column else 0
