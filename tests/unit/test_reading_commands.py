"""`lakehold status` and `lakehold doctor` only read: they neither create a lake nor change one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lakehold.cli.app import app
from lakehold.lake import connect
from lakehold.state.format_version import FORMAT_VERSION, KEEPER, PROPERTY


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--format", "json"])


def lake_row() -> dict[str, str]:
    rows = [json.loads(line) for line in run("doctor", "--quiet").stdout.splitlines()]
    return next(row for row in rows if row["checked"] == "lake")


def files(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))


def nothing(_lake: Path) -> None:
    """Make nothing: not even the directory exists."""


def empty_directory(lake: Path) -> None:
    lake.mkdir()


def empty_database(lake: Path) -> None:
    lake.mkdir()
    (lake / "catalog.db").touch()


def lake_of_another_name(lake: Path) -> None:
    connect(str(lake), catalog_name="other").close()


def lost_catalog(lake: Path) -> None:
    connect(str(lake)).close()
    for file in lake.glob("catalog.db*"):
        file.unlink()


@pytest.mark.parametrize("made", [nothing, empty_directory, empty_database, lake_of_another_name, lost_catalog])
def test_a_lake_that_does_not_exist_is_reported_and_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "lake")
    before = files(tmp_path)
    status = run("status")
    assert (status.exit_code, status.stdout) == (1, "")
    assert status.stderr.startswith(f'error: there is no lake in "file://{tmp_path}/lake"\n')
    assert status.stderr.endswith("\ncode: lake-missing\n")
    row = lake_row()
    assert (row["state"], row["found"].startswith(f"there is none in file://{tmp_path}/lake yet")) == ("ok", True)
    assert files(tmp_path) == before
    assert run("sql", "SHOW SOURCES").exit_code == 0
    assert run("status").exit_code == 0
    assert lake_row()["found"].endswith(": 0 source(s), 0 table(s)")


def test_a_lake_of_an_earlier_format_is_reported_and_not_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with connect() as lake, lake.catalog.load_table(KEEPER).transaction() as transaction:
        transaction.set_properties({PROPERTY: str(FORMAT_VERSION - 1)})
    before = files(tmp_path)
    status, row = run("status"), lake_row()
    assert (status.exit_code, "\ncode: lake-older\n" in status.stderr) == (1, True)
    assert (row["state"], 'lakehold sql "SHOW SOURCES"' in row["hint"]) == ("failed", True)
    assert files(tmp_path) == before
    assert run("sql", "SHOW SOURCES").exit_code == 0
    assert run("status").exit_code == 0
