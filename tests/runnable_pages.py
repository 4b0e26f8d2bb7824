"""Pages of the documentation as programs: their blocks run in order, and must print the output that the page shows.

A page is Markdown. Blocks of SQL, shell and Python run, and SQL of PostgreSQL in the page's database.
The `text` that comes next is the output, unless lines drawn in it show that it is a picture. TOML becomes the configuration file.
A comment before a block says when that is not so:

    <!-- test: NAME -->         a step: what happens here besides, or holds here
    <!-- live: NAME -->         a step, too; the blocks from here to the next `test` need PostgreSQL, Kafka and Kafka Connect
    <!-- file: PATH -->         the next block is saved as this file
    <!-- checked by: PATH -->   this test, which names the page, runs the next block or compares it with the code

Timestamps, their texts and snapshot ids differ from run to run. The first time a page shows one, it stands for the one that was
printed; from then on, in outputs and in programs, for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.doc_pages import DOCS, ROOT

PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
RUN = ("sql", "sh", "python", "postgresql")

_PART = re.compile(
    r"^<!-- (?P<comment>test|live|file|checked by): (?P<note>.+?) -->$"
    r"|^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FENCE = re.compile(r"^\s*(```|~~~)", re.MULTILINE)
_CHANGING = re.compile(r"\b1[67]\d{11}\b|\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\b|\b\d{17,19}\b")
_RULES = re.compile(r"[│┃━╇┿─]+")


@dataclass(frozen=True)
class Part:
    """A block of a page, or a step.

    Attributes:
        kind: The language of a block; `step`.
        text: What it holds; the name of a step.
        line: Where it begins.
        is_live: Whether it needs the stack.
        is_output: Whether it is what the block before it prints.
        mark: The first words of the comment before a block: `file` or `checked by`.
        note: The rest of that comment.
    """

    kind: str
    text: str
    line: int
    is_live: bool
    is_output: bool = False
    mark: str = ""
    note: str = ""

    @property
    def runs(self) -> bool:
        """Return whether the block is a program that runs where it stands."""
        return self.kind in RUN and not self.mark

    @property
    def is_picture(self) -> bool:
        """Return whether the block is drawn, not printed."""
        return self.kind == "text" and "━" not in self.text and not {"─", "│"}.isdisjoint(self.text)


def parts(page: str) -> Iterator[Part]:
    """Read a page.

    Raises:
        ValueError: A block would not be seen, as it is indented or not closed, or a comment has no block.
    """
    found = list(_PART.finditer(page))
    if len(_FENCE.findall(page)) != 2 * sum(match["language"] is not None for match in found):
        raise ValueError("a block is indented or has no end")
    before, ended, is_live = None, 0, False
    mark, note = "", ""
    for match in found:
        line = page.count("\n", 0, match.start()) + 1
        if mark and (match["comment"] or page[ended : match.start()].strip()):
            raise ValueError(f"no block follows the comment above line {line}")
        if match["comment"] in ("test", "live"):
            is_live = match["comment"] == "live"
            before = Part("step", match["note"], line, is_live)
            yield before
        elif match["comment"]:
            mark, note = match["comment"], match["note"]
        else:
            block = Part(match["language"], match["text"], line, is_live, False, mark, note)
            prints = before is not None and before.runs and block.kind == "text"
            before = replace(block, is_output=prints and not mark and not block.is_picture)
            yield before
            mark, note = "", ""
        ended = match.end()


def checked(page: str, by: str) -> list[str]:
    """Return the blocks of a page that a test checks.

    Args:
        page: The page's path, such as `docs/airflow.md`.
        by: The test's `__file__`.
    """
    found = parts((ROOT / page).read_text())
    return [part.text for part in found if part.mark == "checked by" and ROOT / part.note == Path(by)]


@dataclass
class Standins:
    """The text of this run for each changing text of a page."""

    of: dict[str, str] = field(default_factory=dict)

    def applied(self, program: str) -> str:
        """Put this run's texts into a program of the page.

        Raises:
            KeyError: It has a timestamp that the page has not shown before.
        """
        known = sorted(self.of, key=len, reverse=True)
        either = re.compile("|".join([*map(re.escape, known), _CHANGING.pattern]))
        return either.sub(lambda match: self.of[match.group()], program)

    def matches(self, shown: str, printed: str) -> bool:
        """Compare an output of a page with a printed one, and record the printed counterpart of each new text.

        A line `…` stands for any lines, `…` in a line for anything. Rules and the width of columns do not count.
        """
        named: dict[str, str] = {}
        lines = [_spaced(line) for line in shown.splitlines()]
        pattern = "".join(r"(?:.*\n)*?" if line == "…" else f"{self._pattern(line, named)}\n" for line in lines if line)
        match = re.fullmatch(pattern, "".join(f"{line}\n" for line in map(_spaced, printed.splitlines()) if line))
        if match is None:
            return False
        self.of |= {text: match[name] for text, name in named.items()}
        return True

    def _pattern(self, line: str, named: dict[str, str]) -> str:
        """Return a regular expression for a line; `named` gets the group of each new text."""
        pieces, ended = list[str](), 0
        for match in _CHANGING.finditer(line):
            pieces += [_escaped(line[ended : match.start()]), self._changing(match.group(), named)]
            ended = match.end()
        return "".join([*pieces, _escaped(line[ended:])])

    def _changing(self, text: str, named: dict[str, str]) -> str:
        if text in self.of:
            return re.escape(self.of[text])
        if text in named:
            return f"(?P={named[text]})"
        named[text] = f"text{len(named)}"
        return f"(?P<{named[text]}>{_CHANGING.pattern})"


def _spaced(line: str) -> str:
    """Reduce a line of a table to its words."""
    return " ".join(_RULES.sub(" ", line).split())


def _escaped(text: str) -> str:
    return ".*?".join(map(re.escape, text.split("…")))
