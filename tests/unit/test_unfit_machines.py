"""A machine that lacks what a command needs is reported in words, with a way out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakehold import artifacts
from lakehold.cli.stack import app
from lakehold.errors import EnvironmentMissing
from lakehold.servers import ServerError
from lakehold.servers.server_directory import default_directory
from lakehold.settings import load_settings
from lakehold.spark_server import lifecycle
from lakehold.stack import StackPlan, StackPorts

COMMAND = str(Path(sys.executable).with_name("lakehold"))


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )


def test_a_level_that_the_log_does_not_have_is_named() -> None:
    refused = run("stack", "status", LAKEHOLD_LOG="verbose")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[0] == 'error: LAKEHOLD_LOG is "VERBOSE", which is no level'
    assert "Traceback" not in refused.stderr
    assert run("--version", LAKEHOLD_LOG="").returncode == 0


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process one of a user whom the system does not know, as containers run them."""

    def unknown(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    monkeypatch.setattr(Path, "expanduser", unknown)
    for variable in ("LAKEHOLD_CACHE_DIR", "LAKEHOLD_STACK_DIR"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_learns_what_to_set() -> None:
    for needed, variable in (
        (artifacts.cache_root, "LAKEHOLD_CACHE_DIR"),
        (lambda: default_directory("stack", "LAKEHOLD_STACK_DIR"), "LAKEHOLD_STACK_DIR"),
    ):
        with pytest.raises(EnvironmentMissing) as missing:
            needed()
        assert missing.value.code == "home-missing"
        assert variable in missing.value.hint


@pytest.mark.usefixtures("homeless")
def test_help_needs_no_home() -> None:
    shown = CliRunner().invoke(app, ["status", "--help"])
    assert (shown.exit_code, "--directory" in shown.output) == (0, True)


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_damaged_record_of_ports_is_named(tmp_path: Path, content: str) -> None:
    for name in ("stack.json", "spark.json"):
        (tmp_path / name).write_text(content)
    with pytest.raises(ServerError) as damaged:
        StackPlan.recorded(tmp_path)
    assert damaged.value.code == "server-directory"
    assert str(tmp_path / "stack.json") in damaged.value.message
    with pytest.raises(ServerError, match=r"spark\.json"):
        lifecycle.status(tmp_path)


def test_a_record_of_ports_is_replaced_as_a_whole(tmp_path: Path) -> None:
    StackPlan(tmp_path, StackPorts(kafka=1)).record()
    (tmp_path / "stack.partial").symlink_to("/dev/full")
    with pytest.raises(ServerError, match="cannot be written"):
        StackPlan(tmp_path, StackPorts(kafka=2)).record()
    assert StackPlan.recorded(tmp_path).ports == StackPorts(kafka=1)


def test_a_directory_that_cannot_be_created_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    below = tmp_path / "file" / "below"
    with pytest.raises(ServerError) as refused:
        lifecycle.up(below, load_settings(warehouse=str(tmp_path / "lake")))
    assert refused.value.code == "server-directory"
    monkeypatch.setenv("LAKEHOLD_CACHE_DIR", str(below))
    with pytest.raises(EnvironmentMissing) as unwritable:
        artifacts.jars("spark")
    assert unwritable.value.code == "artifact-fetch"
    assert "LAKEHOLD_CACHE_DIR" in unwritable.value.hint
