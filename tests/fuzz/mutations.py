"""Small random changes of texts, bytes and JSON values: what typing errors, broken producers and attackers do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

ODD_TEXTS = [
    "",
    "'",
    '"',
    "`",
    "\\",
    "/*",
    "*/",
    "--",
    "-- \\\n",
    "|> UNION ALL SELECT 1",
    ";",
    "\0",
    "\x85",
    "\u202e",
    "\ud7ff",
    "é",
    "😀",
    "1e400",
    "9" * 400,
    "-0.0",
    "NaN",
    "${env:HOME}",
    "../..",
    "__proto__",
    "SELECT",
    "a" * 5_000,
]
"""Texts that parsers, file names, terminals and number formats are known to get wrong."""


def mistyped(
    sql: str, tokens: Sequence[tuple[int, int]], words: Sequence[str], others: Sequence[str], chance: Random
) -> str:
    """Return a statement with one mistake.

    Args:
        sql: The statement.
        tokens: Its tokens as (start, exclusive end).
        words: Words that may come in.
        others: Statements of which a part may come in.
        chance: The source of randomness.
    """
    start, end = chance.choice(tokens) if tokens else (0, len(sql))
    again, again_end = chance.choice(tokens) if tokens else (0, len(sql))
    word, other = chance.choice(words), chance.choice(others)
    anywhere = chance.randrange(len(sql) + 1)
    return chance.choice(
        [
            sql[:start],
            sql[: end - 1],
            sql[:start] + sql[end:],
            f"{sql[:start]} {word} {sql[end:]}",
            f"{sql[:end]} {word} {sql[end:]}",
            f"{sql[:end]} {sql[start:end]} {sql[end:]}",
            f"{sql[:start]} {other[chance.randrange(len(other) + 1) :]} {sql[end:]}",
            sql[:start] + sql[again:again_end] + sql[end:],
            sql[:anywhere] + word + sql[anywhere + chance.randrange(2) :],
        ]
    )


def damaged(content: bytes, others: Sequence[bytes], chance: Random) -> bytes:
    """Return a message with some bytes changed, lost, added or exchanged for those of another one."""
    at = chance.randrange(len(content) + 1)
    until = min(len(content), at + chance.choice([1, 1, 2, 8, 100]))
    other = chance.choice(others)
    cut = chance.randrange(len(other) + 1)
    return chance.choice(
        [
            content[:at],
            content[:at] + content[until:],
            content[:at] + chance.randbytes(until - at) + content[until:],
            content[:at] + chance.randbytes(chance.choice([1, 4, 30])) + content[at:],
            content[:until] + content[at:until] + content[until:],
            content[:at] + other[cut:],
            content[:at] + chance.choice(ODD_TEXTS).encode("utf-8", "surrogatepass") + content[until:],
            content[:at] + bytes(b ^ 1 << chance.randrange(8) for b in content[at:until]) + content[until:],
        ]
    )


def other_json(content: bytes, chance: Random) -> bytes:
    """Return JSON with one value in it exchanged, removed, wrapped or doubled; bytes that are no JSON come back as they are."""
    try:
        value = json.loads(content)
    except ValueError:
        return content
    places = list(_places(value))
    if not places:
        return json.dumps(_odd_value(value, chance)).encode()
    holder, at = chance.choice(places)
    change: Callable[[], Any] = chance.choice([
        lambda: holder.__setitem__(at, _odd_value(holder[at], chance)),
        lambda: holder.__delitem__(at),
        lambda: holder.__setitem__(at, [holder[at]]),
        lambda: holder.__setitem__(at, {"a": holder[at]}),
        lambda: holder.update({chance.choice(ODD_TEXTS): holder[at]}) if isinstance(holder, dict) else holder.append(1),
    ])  # fmt: skip
    change()
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5)
    return text.encode("utf-8", "surrogatepass")


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return each container inside a JSON value with each of its keys."""
    found, left = [], [value]
    while left:
        each = left.pop()
        inside = list(each) if isinstance(each, dict) else range(len(each)) if isinstance(each, list) else ()
        for at in inside:
            found.append((each, at))
            left.append(each[at])
    return found


def _odd_value(value: Any, chance: Random) -> Any:
    deep: Any = value
    for _ in range(200):
        deep = [deep]
    return chance.choice(
        [
            *[None, True, 0, -1, 1.5, 2**31, 2**63, -(2**70), 10**400, 1e308, "", "x", [], {}, [1, "a"], {"a": None}],
            *[chance.choice(ODD_TEXTS), str(value), deep],
        ]
    )
