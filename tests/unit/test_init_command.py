"""`lakehold init` writes files that lakehold reads as they are, and overwrites none."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakehold.cli.app import app
from lakehold.orchestration.schedules import Schedules
from lakehold.settings import Settings, load_settings

OPTIONAL = {"catalog_uri", "spark_remote"}
"""Settings whose example is no default: they have none that could be written down."""


def test_the_settings_are_read_and_the_comments_show_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "it's new"
    assert CliRunner().invoke(app, ["init", str(folder)]).exit_code == 0
    monkeypatch.setenv("LAKEHOLD_CONFIG", str(folder / "lakehold.toml"))
    monkeypatch.delenv("LAKEHOLD_WAREHOUSE", raising=False)
    assert load_settings().warehouse_path == folder / "lake"
    text = (folder / "lakehold.toml").read_text()
    shown = tomllib.loads("\n".join(re.findall(r"^# (\w+ = .*)$", text, re.MULTILINE)))
    assert {name: value for name, value in shown.items() if name not in OPTIONAL} == {
        name: Settings.model_fields[name].default for name in shown if name not in OPTIONAL
    }


def test_the_settings_of_the_dags_are_read_by_a_shell(tmp_path: Path) -> None:
    folder = tmp_path / "it's new"
    assert CliRunner().invoke(app, ["init", str(folder)]).exit_code == 0
    printed = subprocess.run(
        ["sh", "-c", "set -a; . ./airflow.env; env"], cwd=folder, env={}, capture_output=True, text=True, check=True
    ).stdout
    found = dict(line.split("=", 1) for line in printed.splitlines() if line.startswith("LAKEHOLD_"))
    assert found.pop("LAKEHOLD_CONFIG") == str(folder / "lakehold.toml")
    assert found == {f"LAKEHOLD_{name.upper()}": each.default for name, each in Schedules.model_fields.items()}


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text("my own")
    refused = CliRunner().invoke(app, ["init", str(tmp_path)])
    assert (refused.exit_code, refused.stderr.splitlines()[-1]) == (1, "code: file-exists")
    assert [path.name for path in tmp_path.iterdir()] == ["shop.sql"]
    assert (tmp_path / "shop.sql").read_text() == "my own"


@pytest.mark.parametrize("name", ["messages", "airflow.env"])
@pytest.mark.parametrize("is_link", [True, False])
def test_nothing_is_written_beside_a_file_in_the_way(tmp_path: Path, name: str, *, is_link: bool) -> None:
    taken = tmp_path / name
    if is_link:
        taken.symlink_to(tmp_path / "gone")
    else:
        taken.touch()
    refused = CliRunner().invoke(app, ["init", str(tmp_path)])
    assert (refused.exit_code, refused.stderr.splitlines()[-1]) == (1, "code: file-exists")
    assert f"In the way: {name}." in refused.stderr
    assert [*tmp_path.iterdir()] == [taken]


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "lake").touch()
    refused = CliRunner().invoke(app, ["init", str(tmp_path / "lake")])
    assert (refused.exit_code, refused.stderr.splitlines()[-1]) == (1, "code: file-exists")
    assert f'file "{tmp_path}/lake" exists' in refused.stderr
