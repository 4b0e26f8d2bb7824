"""`lakehold sql` reads its statements from a file or from standard input; what cannot be read is an error for people."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakehold.cli.app import app

LATIN_1 = "-- ein Maß\r\nDROP SOURCE".encode("latin-1")


@pytest.mark.parametrize("is_stdin", [False, True])
def test_text_that_is_not_utf_8_is_refused(tmp_path: Path, is_stdin: bool) -> None:
    file = tmp_path / "shop.sql"
    file.write_bytes(LATIN_1)
    result = CliRunner().invoke(app, ["sql", "-f", "-" if is_stdin else str(file)], input=LATIN_1 if is_stdin else None)
    name = "standard input" if is_stdin else f'file "{file}"'
    assert (result.exit_code, result.stderr) == (
        1,
        f"error: {name} is not UTF-8\n"
        "detail: Byte 9, counted from 0, is 0xDF: invalid continuation byte.\n"
        "hint: Convert it to UTF-8.\n"
        "code: usage\n",
    )


@pytest.mark.parametrize("is_stdin", [False, True])
def test_statements_are_read_from_a_file_and_from_standard_input(tmp_path: Path, is_stdin: bool) -> None:
    content = LATIN_1.decode("latin-1").encode()
    file = tmp_path / "shop.sql"
    file.write_bytes(content)
    arguments = ["sql", "-f", "-" if is_stdin else str(file), "-w", str(tmp_path / "lake")]
    result = CliRunner().invoke(app, arguments, input=content if is_stdin else None)
    assert result.exit_code == 1
    assert "error: line 2: " in result.stderr
    assert "  DROP SOURCE\n" in result.stderr


def test_a_script_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "shop.sql"
    file.write_text("CREATE CONNECTION kafka TO KAFKA (BROKER '127.0.0.1:1')", encoding="utf-8-sig")
    result = CliRunner().invoke(app, ["sql", "-f", str(file), "-w", str(tmp_path / "lake")])
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["sql", "-f", str(tmp_path / "none.sql")])
    assert (result.exit_code, result.stderr.splitlines()[1]) == (1, "detail: No such file or directory.")


@pytest.mark.parametrize(("words", "completed"), [(["su"], "subscribe"), (["ingest", "--fo"], "--follow")])
def test_a_shell_completes_commands_and_options(words: list[str], completed: str) -> None:
    typed = {"COMP_WORDS": " ".join(["lakehold", *words]), "COMP_CWORD": str(len(words))}
    command = str(Path(sys.executable).with_name("lakehold"))
    environment = {**os.environ, **typed, "_LAKEHOLD_COMPLETE": "complete_bash"}
    found = subprocess.run([command], env=environment, capture_output=True, text=True, check=False).stdout
    assert completed in found.split()
    assert "--quiet" not in found.split()
