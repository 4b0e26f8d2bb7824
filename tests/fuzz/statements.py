"""Mistyped SQL: each text is parsed, or refused with a message at a place in it; nothing else is raised."""

from __future__ import annotations

import itertools
import re
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random

from lakehold.errors import StatementError
from lakehold.sql.parse.statement import parse_script
from lakehold.sql.text.dialect import tokenize
from tests.fuzz.faults import Fault, Tried
from tests.fuzz.mutations import ODD_TEXTS, mistyped
from tests.golden_cases import cases

_GOLDEN = Path(__file__).parents[1] / "golden"
_PAGES = Path(__file__).parents[2] / "docs"
_TOO_LONG_S = 5


def statements_written_down() -> list[str]:
    """Return the statements of the golden files, queries inside a SUBSCRIBE, and those of the pages."""
    folders = {"sql": "{}", "queries": "SUBSCRIBE ({})", "plain": "SUBSCRIBE ({})"}
    golden = [
        frame.format(sql)
        for folder, frame in folders.items()
        for path in sorted((_GOLDEN / folder).glob("*.txt"))
        for sql, _ in cases(path.read_text())
    ]
    blocks = [re.findall(r"```sql\n(.*?)```", page.read_text(), re.DOTALL) for page in sorted(_PAGES.rglob("*.md"))]
    return golden + [block for page in blocks for block in page]


def tokens_of(sql: str) -> list[tuple[int, int]]:
    """Return the tokens of a text as (start, exclusive end); none if it cannot be split."""
    try:
        return [(token.start, token.end + 1) for token in tokenize(sql)]
    except StatementError:
        return []


def fault_of(sql: str) -> str | None:
    """Parse a text; return what is wrong with the answer, if anything is."""
    began = time.process_time()
    try:
        parse_script(sql)
    except StatementError as error:
        if not error.message or not 0 <= error.place.start <= len(sql) or "^" not in error.place.excerpt():
            return f"refused without its place: {error}"
    except BaseException:  # noqa: BLE001 - whatever else is raised is what is looked for
        return traceback.format_exc()
    took_s = time.process_time() - began
    return f"took {took_s:.0f} s of the processor" if took_s > _TOO_LONG_S else None


def tried(chance: Random) -> Iterator[Tried]:
    """Parse mistyped statements for ever, 1,000 at a time."""
    written = statements_written_down()
    words = sorted({sql[start:end] for sql in written for start, end in tokens_of(sql)} | {*ODD_TEXTS})
    while True:
        faults = []
        for _ in range(1_000):
            sql = chance.choice(written)
            for _ in itertools.repeat(None, chance.choice([1, 1, 2, 3, 5])):
                sql = mistyped(sql, tokens_of(sql), words, written, chance)
            if found := fault_of(sql):
                faults.append(Fault(sql, found))
        yield Tried(1_000, tuple(faults))
