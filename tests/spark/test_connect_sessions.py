"""Sessions of Spark Connect in programs that open lakes: beside classic ones, given ones, and ones that cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

WITHIN_S = 300

NOT_PREPARED = """
import sys

from lakehold.errors import LakeholdError
from lakehold.lake import connect
from pyspark.sql import SparkSession

with connect("lake", spark_remote=sys.argv[1], catalog_properties={"io-impl": "no.such.FileIO"}) as lake:
    for _ in range(2):
        try:
            lake.sql("SELECT 1")
        except LakeholdError as error:
            assert error.code == "spark-start" and "no.such.FileIO" in error.detail, (error.code, error.detail)
        else:
            raise AssertionError("it has no such class")
        assert SparkSession.getActiveSession() is None, "it was stopped"
"""


def test_a_session_that_cannot_be_prepared_is_stopped(spark_connect: str, tmp_path: Path) -> None:
    run(NOT_PREPARED, tmp_path, spark_connect)


def run(program: str, directory: Path, *arguments: str, **variables: str) -> None:
    """Run a program that has no session yet, until it ends by itself."""
    command = [sys.executable, "-c", program, *arguments]
    subprocess.run(command, cwd=directory, env={**os.environ, **variables}, check=True, timeout=WITHIN_S)
