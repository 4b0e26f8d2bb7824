"""The `--help` of every command is complete on terminals of usual widths, with examples that can be copied."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata

import pytest
from typer.core import TyperGroup
from typer.main import get_group
from typer.testing import CliRunner

from lakehold.cli.app import app


def commands(group: TyperGroup, *names: str) -> Iterator[tuple[str, ...]]:
    """Yield the group and every command below it."""
    yield names
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, *names, name)
        else:
            yield *names, name


COMMANDS = [*commands(get_group(app))]


def help_of(names: tuple[str, ...], width: int) -> str:
    shown = CliRunner().invoke(app, [*names, "--help"], prog_name="lakehold", terminal_width=width)
    assert shown.exit_code == 0, shown.output
    return shown.output


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_help_is_whole(names: tuple[str, ...], width: int) -> None:
    text = help_of(names, width)
    assert not re.search(r"\\|[^\n -~]", text), "an escape that was not removed"
    assert "..." not in re.sub(r"[\]}]\.\.\.", "", text), "a sentence that was cut off"
    assert [line for line in text.splitlines() if len(line) > width] == []


@pytest.mark.parametrize("name", ["sql", "backfill", "subscribe", "check", "status"])
def test_each_example_is_a_line_of_its_own(name: str) -> None:
    examples = [line.strip() for line in help_of((name,), 80).splitlines() if line.startswith("  lakehold ")]
    assert len(examples) > 1
    assert all(example.startswith(f"lakehold {name}") for example in examples)


def test_the_version_is_shown() -> None:
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"lakehold {metadata.version('lakehold')}\n")


def test_help_and_version_import_no_engine() -> None:
    script = """
import sys
from lakehold.cli import main
sys.argv = ["lakehold", sys.argv[1]]
try:
    main()
finally:
    print([name for name in ("pyspark", "pyiceberg", "pyarrow", "pandas", "sqlglot", "sqlalchemy") if name in sys.modules])
"""
    for option in ("--help", "--version"):
        ran = subprocess.run([sys.executable, "-c", script, option], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "[]"), ran.stderr
