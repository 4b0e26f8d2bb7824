"""Commands whose output goes to a pipe without a reader, or to a terminal that does not take UTF-8."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakehold.cli.app import app

COMMAND = str(Path(sys.executable).with_name("lakehold"))
NAME = "größe_✓_🦆"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    statement = f"CREATE CONNECTION \"{NAME}\" TO KAFKA (BROKER '127.0.0.1:1')"
    assert CliRunner().invoke(app, ["sql", statement, "-w", str(tmp_path / "lake")]).exit_code == 0
    return tmp_path / "lake"


def output(lake: Path, encoding: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [COMMAND, *arguments, "-w", str(lake)]
    ended = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    return ended.stdout.decode(encoding)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_character_that_the_encoding_lacks_is_shown_by_its_code(lake: Path, encoding: str) -> None:
    shown = {"latin-1": r"größe_\u2713_\ud83e\udd86", "ascii": r"gr\u00f6\u00dfe_\u2713_\ud83e\udd86"}[encoding]
    for wanted in ("table", "csv"):
        assert shown in output(lake, encoding, "sql", "SHOW CONNECTIONS", "--format", wanted)
    row = json.loads(output(lake, encoding, "sql", "SHOW CONNECTIONS", "--format", "json"))
    assert row["name"] == NAME


@pytest.mark.parametrize(
    "arguments",
    [
        *(("sql", "SHOW CONNECTIONS", "--format", wanted) for wanted in ("table", "json", "csv")),
        ("status", "--html", "-"),
        ("status", "--prometheus", "-"),
        ("stack", "status"),
        ("stack", "status", "--format", "json"),
        ("spark", "status"),
    ],
)
def test_a_reader_that_has_left_ends_a_command_quietly(lake: Path, arguments: tuple[str, ...]) -> None:
    place = "--directory" if arguments[0] in ("stack", "spark") else "--warehouse"
    read_end, write_end = os.pipe()
    os.close(read_end)
    ended = subprocess.run(
        [COMMAND, *arguments, place, str(lake)], stdout=write_end, stderr=subprocess.PIPE, check=False
    )
    os.close(write_end)
    assert (ended.returncode, ended.stderr) == (0, b"")
