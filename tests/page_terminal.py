"""A terminal in which the programs of a page run: `lakehold` in this process, Python, and `psql`."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any, TextIO

import click
import psycopg
import pytest
from pyspark.sql import SparkSession

import lakehold
from lakehold import lake as lake_module
from lakehold.cli import app as command
from lakehold.cli import backfill, ingest, publish, subscribe
from lakehold.cli.command_output import Output, OutputFormat, open_output
from lakehold.lake import Lake
from lakehold.settings import load_settings
from lakehold.stack import StackAddresses
from tests.doc_pages import DOCS
from tests.runnable_pages import Standins, parts

_COLUMNS = "120"
EXAMPLES = DOCS / "examples"


class Terminal:
    """A directory that pages call `/data`, in which their programs run; each catalog has a Spark session of its own.

    Args:
        directory: The directory.
        spark: The session to derive others from; None if lakehold opens sessions on a server.
        environment: Changes variables until the end of the test.
    """

    def __init__(self, directory: Path, spark: SparkSession | None, environment: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self._environment = environment
        self.standins = Standins({"/data": str(directory), "/data/recorded": str(directory / "messages")})
        self.stack: StackAddresses | None = None
        self.database = "postgres"
        self.python: dict[str, Any] = {}
        self.ctrl_c = CtrlC(None)
        self._spark = spark
        self._sessions: dict[tuple[str, str], SparkSession] = {}
        self._connect = lake_module.connect
        self._opened = ExitStack()

    def connect(self, warehouse: str | None = None, **settings: Any) -> Lake:
        """Open a lake as `lakehold.connect` does, on the session of its catalog."""
        if self._spark is None:
            return self._connect(warehouse, **settings)
        opened = load_settings(warehouse=warehouse, **settings)
        place = (opened.warehouse, opened.catalog_uri)
        if place not in self._sessions:
            self._sessions[place] = _derived(self._spark)
        # Great Expectations takes the one that PySpark remembers.
        SparkSession._instantiatedSession = self._sessions[place]
        return self._connect(warehouse, spark=self._sessions[place], **settings)

    def set_variable(self, name: str, value: str | None) -> None:
        """Set or unset an environment variable."""
        if value is None:
            self._environment.delenv(name, raising=False)
        else:
            self._environment.setenv(name, value)

    def copy(self, directory: Path) -> None:
        """Copy programs as a reader does, who puts names of the own servers into them."""
        for path in (*directory.glob("*.sql"), *directory.glob("*.py")):
            (self.directory / path.name).write_text(self.standins.applied(path.read_text()))

    def close(self) -> None:
        """Close the lake of the page's Python."""
        self._opened.close()

    def forget_sessions(self) -> None:
        """Let lakes have new sessions: those of a deleted lake know its tables."""
        self._sessions.clear()

    def run(self, kind: str, program: str, *, shows: bool) -> tuple[str, bool]:
        """Run a program; `shows` says that the page shows what it prints.

        Returns:
            What it prints, and whether it went well.
        """
        printed = io.StringIO()
        seen = printed if shows else None
        codes = list[int]()
        with redirect_stdout(printed), redirect_stderr(printed):
            match kind:
                case "sql":
                    codes = [self._command(["sql", program], seen)]
                case "sh":
                    codes = [self._command(words, seen) for words in _commands(program)]
                case "postgresql":
                    self._psql(program)
                case _:
                    self._exec(program)
        return printed.getvalue(), not any(codes)

    def _command(self, words: list[str], seen: io.StringIO | None) -> int:
        """Return the exit code of `lakehold` with these arguments."""
        self.ctrl_c = CtrlC(seen)
        try:
            return int(command.app(words, standalone_mode=False) or 0)
        except click.exceptions.Exit as ended:
            return ended.exit_code

    def _psql(self, statements: str) -> None:
        assert self.stack is not None
        with psycopg.connect(self.stack.postgres(self.database), autocommit=True) as connection:
            # One by one, as psql does: together they would be one transaction, in which ALTER SYSTEM is refused.
            for statement in statements.split(";\n"):
                connection.execute(statement.encode())
        if created := re.match(r"CREATE DATABASE (\w+)", statements):
            self.database = created[1]

    def _exec(self, program: str) -> None:
        """Run Python, where `lake` is open; who follows a SUBSCRIBE sees one row, and leaves."""
        if "lake" not in self.python and "lakehold.connect(" not in program:
            self.python["lake"] = self._opened.enter_context(self.connect("lake"))
        self.python["print"] = _print_and_leave if ".follow(" in program else print
        with suppress(KeyboardInterrupt):
            exec(compile(program, "page", "exec"), self.python)


def read(page: Path, terminal: Terminal, step: Callable[[str], None], *, live: bool = False) -> None:
    """Follow a page in the working directory: those of its parts that need the stack, or all others."""
    printed = ""
    for part, after in pairwise([*(part for part in parts(page.read_text()) if part.is_live == live), None]):
        assert part is not None
        where = f"{page.name}:{part.line}"
        shown = after.text if after is not None and after.is_output else ""
        if part.kind == "step":
            step(part.text)
        elif part.is_output:
            assert terminal.standins.matches(part.text, printed), f"{where} is not what was printed:\n{printed}"
        elif part.mark == "file" or part.kind == "toml":
            path = Path(part.note or "lakehold.toml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(terminal.standins.applied(part.text))
        elif part.runs:
            printed, went_well = terminal.run(part.kind, terminal.standins.applied(part.text), shows=bool(shown))
            fails = any(word in shown.lower() for word in ("error: ", " differs from "))
            assert went_well != fails, f"{where} printed:\n{printed}"


class CtrlC(Event):
    """Ctrl-C of somebody who has seen enough: once a command waits for more, and has printed what the page shows.

    Args:
        printed: Where it prints what the page shows; None if the page shows nothing.
    """

    def __init__(self, printed: io.StringIO | None) -> None:
        super().__init__()
        self._printed = printed

    def wait(self, timeout: float | None = None) -> bool:
        """Wait, unless enough is seen."""
        if self._printed is None or self._printed.getvalue():
            self.set()
        return super().wait(timeout)


def _print_and_leave(*values: object) -> None:
    print(*values)
    raise KeyboardInterrupt


def _derived(spark: SparkSession) -> SparkSession:
    """Make a session with the settings of another one, but without its catalogs: other tests have one called `lake`, too."""
    made = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if made.conf.get(name, None) != value and made.conf.isModifiable(name):
            made.conf.set(name, value)
    # A new session has those with which the first session of the process was made.
    for name in made.conf.getAll:
        if name.startswith("spark.sql.catalog."):
            made.conf.unset(name)
    return made


def _commands(program: str) -> Iterator[list[str]]:
    """Yield the arguments of each `lakehold`: a page has no other program."""
    for line in program.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            assert words[0] == "lakehold", line
            yield words[1:]


def _table_output(wanted: OutputFormat | None, stdout: TextIO, stderr: TextIO) -> Output:
    return open_output(wanted or OutputFormat.TABLE, stdout, stderr)


@pytest.fixture
def terminal(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Open a terminal in an empty directory, on the shared session of either kind."""
    if request.config.getoption("--spark-connect"):
        monkeypatch.setenv("LAKEHOLD_SPARK_REMOTE", request.getfixturevalue("spark_connect"))
        made = Terminal(tmp_path, None, monkeypatch)
    else:
        made = Terminal(tmp_path, request.getfixturevalue("classic_session"), monkeypatch)
        monkeypatch.setattr(SparkSession, "_instantiatedSession", request.getfixturevalue("classic_session"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", _COLUMNS)
    monkeypatch.setattr(lake_module, "connect", made.connect)
    # The package looks the name up at each use. An attribute would be restored to what it was found to be: this replacement.
    monkeypatch.setitem(vars(lakehold), "connect", made.connect)
    monkeypatch.setattr(command, "open_output", _table_output)
    for module in (backfill, ingest, publish, subscribe):
        monkeypatch.setattr(module, "stop_on_signal", lambda: made.ctrl_c)
    yield made
    made.close()
    if not request.config.getoption("--spark-connect"):
        # A session that makes a DataFrame stays the active one: let no session of a page be that for other tests.
        request.getfixturevalue("classic_session").createDataFrame([], "a int")
