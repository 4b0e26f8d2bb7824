"""The cases of a golden text file: input, a line `----`, what comes of it; a case ends at a blank line."""

from __future__ import annotations

SEPARATOR = "\n----"


def cases(text: str) -> list[tuple[str, str]]:
    """Input and expectation of each case."""
    blocks = [block for block in text.split("\n\n") if block.strip()]
    pairs = [block.strip("\n").partition(SEPARATOR) for block in blocks]
    return [(sql, expected.strip("\n")) for sql, _, expected in pairs]
