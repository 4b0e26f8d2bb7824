"""A simulated reader of a documentation page, who types its commands and compares their output with the page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lakehold.lake
from lakehold.cli.app import app
from lakehold.lake import Lake
from tests.conftest import LakeFactory

_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_TIME = re.compile(r"\b\d{13}\b|\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\b")
_LEFT_OUT = "…"
_TERMINAL_COLUMNS = 170

_numbers = count()


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Return the commands of a shell block."""
        return self.text.replace("\\\n", " ").splitlines()


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page in order."""
    for match in _BLOCK.finditer(page):
        yield Block(match["language"], match["text"])


class PageReader:
    """A reader who types commands of `lakehold` in this process, on lakes over the shared Spark session.

    The reader's timestamps differ from the page's: wherever an output shows a timestamp, later commands use its counterpart.
    """

    def __init__(self, make_lake: LakeFactory, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self._times: dict[str, str] = {}
        # Other tests of the session have catalogs named `lake` as well.
        number = next(_numbers)

        def connect(warehouse: str | None) -> Lake:
            name = warehouse or "lake"
            return make_lake(directory / name, catalog_name=f"page{number}_{name.replace('-', '_')}")

        monkeypatch.chdir(directory)
        monkeypatch.setattr(lakehold.lake, "connect", connect)
        monkeypatch.setenv("COLUMNS", str(_TERMINAL_COLUMNS))

    def types(self, command: str) -> str:
        """Run one command as on a terminal, and return its output."""
        name, *arguments = shlex.split(_TIME.sub(lambda shown: self._times[shown[0]], command))
        assert name == "lakehold"
        done = CliRunner().invoke(app, [*arguments, "--format", "table"])
        assert done.exit_code == 0, done.stderr
        return done.stdout

    def sees(self, shown: str, printed: str) -> None:
        """Compare an output of the page with a printed one: all of it, or in order the parts between its `…`."""
        wanted, found = _lines(shown), _lines(printed)
        if _LEFT_OUT not in wanted:
            assert _masked(found) == _masked(wanted)
        for part in _parts(wanted):
            starts = [at for at in range(len(found)) if _masked(found[at : at + len(part)]) == _masked(part)]
            assert starts, "\n".join(["not printed:", *part, "in:", *found])
            end = starts[0] + len(part)
            seen = "\n".join(found[starts[0] : end])
            self._times.update(zip(_TIME.findall("\n".join(part)), _TIME.findall(seen), strict=True))
            found = found[end:]


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _masked(lines: list[str]) -> list[str]:
    return [_TIME.sub("<time>", line) for line in lines]


def _parts(lines: list[str]) -> Iterator[list[str]]:
    """Yield the runs of lines between the `…` of an output."""
    part: list[str] = []
    for line in [*lines, _LEFT_OUT]:
        if line != _LEFT_OUT:
            part.append(line)
        elif part:
            yield part
            part = []
