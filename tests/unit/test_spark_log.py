"""A command that starts Spark keeps the JVM's output out of its stderr: an error stands alone, and names the log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lakehold.artifacts import cache_root


def failing(folder: Path, sql: str, **environment: str) -> tuple[list[str], str]:
    """Run a statement that fails in Spark; returns the lines of its stderr, and the log that the last of them names."""
    command = [str(Path(sys.executable).with_name("lakehold")), "sql", sql]
    variables = {**os.environ, "LAKEHOLD_CACHE_DIR": str(folder / "cache"), **environment}
    ran = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, ""), ran.stderr
    *lines, last = ran.stderr.splitlines()
    log = Path(last.removeprefix("log: "))
    assert [*(folder / "cache" / "logs").iterdir()] == [log]
    return lines, log.read_text()


def test_an_error_of_spark_stands_alone_and_names_the_log(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    for jars in cache_root().glob("spark-*"):
        (tmp_path / "cache" / jars.name).symlink_to(jars)
    lines, log = failing(tmp_path, "SELECT 1; SELECT raise_error('no such order') FROM range(3)")
    assert (lines[0], lines[-1]) == ("error: line 1: no such order", "code: USER_RAISED_EXCEPTION")
    assert len(lines) == 4  # with the statement and a caret
    assert "WARNING: Using incubator modules" in log
    assert "\tat org.apache.spark" in log


def test_a_missing_java_is_an_error_that_names_the_log(tmp_path: Path) -> None:
    own = {"LAKEHOLD_SPARK_CONF": '{"spark.jars": ""}', "JAVA_HOME": str(tmp_path / "none")}
    lines, log = failing(tmp_path, "SELECT 1", **own)
    assert lines[0] == "error: Spark's Java process ended before it was ready"
    assert lines[-1] == "code: java-start"
    assert str(tmp_path / "none") in log
