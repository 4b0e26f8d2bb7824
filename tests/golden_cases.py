"""Cases of a golden text file: input, a line `----`, the outcome. A blank line ends a case."""

from __future__ import annotations

SEPARATOR = "\n----"


def cases(text: str) -> list[tuple[str, str]]:
    """Split a golden text into input and expected outcome of each case."""
    blocks = [block for block in text.split("\n\n") if block.strip()]
    pairs = [block.strip("\n").partition(SEPARATOR) for block in blocks]
    return [(sql, expected.strip("\n")) for sql, _, expected in pairs]
