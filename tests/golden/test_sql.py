"""Statements as text files: input, `----`, the statement it becomes or the error with its caret.

A case ends at a blank line. `LAKEHOLD_REWRITE=1 pytest tests/golden` writes what the parser says now: read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path
from pprint import pformat

import pytest

from lakehold.errors import StatementError
from lakehold.sql.parse import parse_script

FILES = sorted(Path(__file__).parent.glob("sql/*.txt"))
SEPARATOR = "\n----"


def cases(text: str) -> list[tuple[str, str]]:
    """Input and expectation of each case."""
    blocks = [block for block in text.split("\n\n") if block.strip()]
    pairs = [block.strip("\n").partition(SEPARATOR) for block in blocks]
    return [(sql, expected.strip("\n")) for sql, _, expected in pairs]


def outcome(sql: str) -> str:
    try:
        return "\n".join(pformat(parsed.statement, width=118) for parsed in parse_script(sql))
    except StatementError as error:
        return f"error: {error}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_statements_and_errors_are_as_written_down(path: Path) -> None:
    found = [(sql, outcome(sql)) for sql, _ in cases(path.read_text())]
    if os.environ.get("LAKEHOLD_REWRITE"):
        path.write_text("\n\n".join(f"{sql}{SEPARATOR}\n{result}" for sql, result in found) + "\n")
    assert cases(path.read_text()) == found


def test_there_are_cases() -> None:
    assert len(FILES) > 1
