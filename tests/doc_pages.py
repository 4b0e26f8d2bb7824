"""The documentation as text: its sections, tables and inline code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

_INLINE_CODE = re.compile(r"`([^`\n]+)`")


def page(name: str) -> str:
    """Read a page by its path below `docs`, such as `reference/commands.md`."""
    return (DOCS / name).read_text()


def section(text: str, heading: str) -> str:
    """Return the text under a heading, up to the next one of its level or above."""
    level = heading.index(" ")
    _, _, after = text.partition(f"\n{heading}\n")
    assert after, f"no section {heading!r}"
    return re.split(rf"^#{{1,{level}}} ", after, maxsplit=1, flags=re.MULTILINE)[0]


def table_rows(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row of the tables in `text`, without the headers."""
    lines = text.splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("|") and not line.startswith("|--") and not after.startswith("|--"):
            yield tuple(cell.strip() for cell in line.strip("|").split("|"))


def inline_code(text: str) -> list[str]:
    """Return the texts between single backquotes."""
    return _INLINE_CODE.findall(text)
