"""`lakehold doctor` names what is missing or does not answer, with a way to get it, and examines the rest all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakehold.cli.app import app
from lakehold.lake import connect
from tests.spark_connect import free_port


def findings(lake: Path) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit code and the rows by what they are about."""
    result = CliRunner().invoke(app, ["doctor", "--warehouse", str(lake), "--format", "json", "--quiet"])
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return result.exit_code, {row["checked"]: row for row in rows}


def test_all_is_well_on_a_machine_that_runs_these_tests(tmp_path: Path) -> None:
    code, found = findings(tmp_path / "lake")
    assert {name: row["state"] for name, row in found.items()} == dict.fromkeys(
        ("Python", "Java", "jars: spark", "lake"), "ok"
    )
    assert code == 0
    assert not (tmp_path / "lake").exists(), "nothing was changed"


def test_a_java_that_is_missing_or_old_is_named_and_the_rest_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, found = findings(tmp_path / "lake")
    assert (code, found["Java"]["state"], found["lake"]["state"]) == (1, "failed", "ok")
    assert str(tmp_path) in found["Java"]["found"]
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    code, found = findings(tmp_path / "lake")
    assert (code, found["Java"]["state"]) == (1, "failed")
    assert "11.0.2" in found["Java"]["found"]
    assert "17" in found["Java"]["hint"]


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEHOLD_SPARK_REMOTE", f"sc://127.0.0.1:{free_port()}")
    code, found = findings(tmp_path / "lake")
    assert (code, found["Spark Connect"]["state"]) == (1, "failed")
    assert "lakehold spark up" in found["Spark Connect"]["hint"]
    assert "Java" not in found, "the server has its own"


def test_each_connection_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("LAKEHOLD_UPSTREAM_TIMEOUT_MS", "1000")
    with connect(str(tmp_path / "lake")) as lake:
        lake.sql(
            f"CREATE CONNECTION k TO KAFKA (BROKER '127.0.0.1:{port}');"
            f"CREATE CONNECTION r TO SCHEMA REGISTRY (URL 'http://127.0.0.1:{port}');"
            f"CREATE CONNECTION c TO CONNECT (URL 'http://127.0.0.1:{port}');"
            f"CREATE CONNECTION p TO POSTGRES (HOST '127.0.0.1', PORT {port}, USER 'u', DATABASE 'd');"
            f"CREATE CONNECTION m TO MYSQL (HOST '127.0.0.1', PORT {port}, USER 'u');"
            f"CREATE CONNECTION s TO POSTGRES (HOST '127.0.0.1', USER 'u', PASSWORD SECRET 'NOWHERE', DATABASE 'd')"
        )
    code, found = findings(tmp_path / "lake")
    assert code == 1
    for name in "krcpms":
        row = found[f"connection {name}"]
        assert row["state"] == "failed"
        assert row["hint"]
    assert "NOWHERE" in found["connection s"]["found"] + found["connection s"]["hint"]
