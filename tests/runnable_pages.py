"""Pages of the documentation as programs: their blocks run in order, and must print the output that the page shows.

A page is Markdown. Blocks of SQL, shell and Python run; `text` directly after such a block is its output; TOML becomes the
configuration file. A comment before a block marks the exceptions:

    <!-- test: NAME -->         the upstream changes as NAME says, before the next block
    <!-- only parsed: WHY -->   the next block is SQL or a command that is only parsed
    <!-- not run: WHY -->       the next block is no program of lakehold

Timestamps, their texts and snapshot ids differ from run to run. When a page shows such a text for the first time, it stands for
the printed one; later outputs and programs of the page use the printed one in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_PART = re.compile(
    r"^<!-- (?P<kind>test|only parsed|not run): (?P<note>.+?) -->$|^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FENCE = re.compile(r"^\s*(```|~~~)", re.MULTILINE)
_CHANGING = re.compile(r"\b1[67]\d{11}\b|\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\b|\b\d{17,19}\b")
_RULES = re.compile(r"[│┃━╇┿─]+")
RUN = ("sql", "sh", "python")


@dataclass(frozen=True)
class Part:
    """A block of a page, or a comment before one.

    Attributes:
        kind: The language of a block; `test`, `only parsed` or `not run` of a comment.
        text: Content of the block or comment.
        line: Number of its first line.
        is_output: The block shows the output of the block before it.
    """

    kind: str
    text: str
    line: int
    is_output: bool = False


def parts(page: str) -> Iterator[Part]:
    """Read a page.

    Raises:
        ValueError: A block is indented or not closed, so that this function would miss it.
    """
    found = list(_PART.finditer(page))
    if len(_FENCE.findall(page)) != 2 * sum(match["language"] is not None for match in found):
        raise ValueError("a block is indented or has no end")
    before, ended = "", 0
    for match in found:
        kind = match["kind"] or match["language"]
        text = match["note"] or match["text"]
        follows = not page[ended : match.start()].strip()
        yield Part(kind, text, page.count("\n", 0, match.start()) + 1, kind == "text" and before in RUN and follows)
        before, ended = kind, match.end()


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
