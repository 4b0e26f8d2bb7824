"""Every block of the how-to pages runs, in order and in a lake of the page's own, and prints what the page shows."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

import click
import pytest
from pyspark.sql import SparkSession

import lakehold
from lakehold import lake as lake_module
from lakehold.cli import app as command
from lakehold.cli.command_output import Output, OutputFormat, open_output
from lakehold.lake import Lake
from lakehold.settings import load_settings
from lakehold.sql.parse import parse_script
from tests.doc_pages import ROOT
from tests.how_to_shop import STEPS, HowToShop
from tests.runnable_pages import RUN, Part, Standins, parts
from tests.signal_handlers import handlers_restored as handlers_restored  # noqa: PLC0414 - pytest finds fixtures by name

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("handlers_restored", "jvm")]

PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
WIDTH = "120"


class Terminal:
    """A directory in which a page's blocks run, which pages call `/data`; each catalog has a Spark session of its own."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._sessions: dict[tuple[str, str], SparkSession] = {}
        self._connect = lake_module.connect
        self.standins = Standins({"/data": str(directory)})
        self.shop = HowToShop(directory, self.connect, self.standins)
        self._python: dict[str, Any] = {}

    def connect(self, warehouse: str | None = None, **settings: Any) -> Lake:
        """Open a lake as `lakehold.connect` does, on the session of its catalog."""
        opened = load_settings(warehouse=warehouse, **settings)
        place = (opened.warehouse, opened.catalog_uri)
        if place not in self._sessions:
            self._sessions[place] = self._new_session()
        # Great Expectations takes the one that PySpark remembers.
        SparkSession._instantiatedSession = self._sessions[place]
        return self._connect(warehouse, spark=self._sessions[place], **settings)

    def run(self, block: Part) -> tuple[str, bool]:
        """Run a block, and return its stdout and stderr, and whether it succeeded."""
        program = self.standins.applied(block.text)
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            match block.kind:
                case "sql":
                    codes = [_command(["sql", program])]
                case "sh":
                    codes = [_command(shlex.split(line, comments=True)[1:]) for line in _lines(program)]
                case _:
                    exec(compile(program, "page", "exec"), self._python)
                    codes = [0]
        return printed.getvalue(), not any(codes)

    def _new_session(self) -> SparkSession:
        made = self._spark.newSession()
        for name, value in self._spark.conf.getAll.items():
            if made.conf.get(name, None) != value and made.conf.isModifiable(name):
                made.conf.set(name, value)
        return made


def _lines(program: str) -> Iterator[str]:
    for line in program.replace("\\\n", " ").splitlines():
        if line.strip():
            assert line.startswith("lakehold "), line
            yield line


def _command(words: list[str]) -> int:
    """Run `lakehold` with these arguments, and return its exit code."""
    try:
        return int(command.app(words, standalone_mode=False) or 0)
    except click.exceptions.Exit as ended:
        return ended.exit_code


def _table_output(wanted: OutputFormat | None, stdout: TextIO, stderr: TextIO) -> Output:
    return open_output(wanted or OutputFormat.TABLE, stdout, stderr)


@pytest.fixture
def terminal(classic_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", WIDTH)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", classic_session)
    made = Terminal(classic_session, tmp_path)
    monkeypatch.setattr(lake_module, "connect", made.connect)
    monkeypatch.setattr(lakehold, "connect", made.connect, raising=False)
    monkeypatch.setattr(command, "open_output", _table_output)
    return made


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page: Path, terminal: Terminal) -> None:
    mark, printed, went_well = "", "", True
    for part, after in pairwise([*parts(page.read_text()), None]):
        assert part is not None
        where = f"{page.name}:{part.line}"
        if part.kind in ("only parsed", "not run"):
            mark = part.kind
            continue
        if part.kind == "test":
            STEPS[part.text](terminal.shop)
        elif part.is_output:
            assert terminal.standins.matches(part.text, printed), f"{where} is not what was printed:\n{printed}"
        elif mark == "only parsed":
            assert part.kind in ("sql", "sh"), where
            assert part.kind == "sh" or parse_script(part.text), where
        elif mark == "not run":
            assert part.kind not in RUN, f"{where} would run"
        elif part.kind == "toml":
            Path("lakehold.toml").write_text(terminal.standins.applied(part.text))
        else:
            assert part.kind in RUN, f"{where} is neither run nor marked"
            printed, went_well = terminal.run(part)
            fails = after is not None and after.is_output and "error: " in after.text.replace("Error: ", "error: ")
            assert went_well != fails, f"{where} printed:\n{printed}"
        mark = ""


def test_every_step_is_on_a_page() -> None:
    used = {part.text for page in PAGES for part in parts(page.read_text()) if part.kind == "test"}
    assert used == set(STEPS)
