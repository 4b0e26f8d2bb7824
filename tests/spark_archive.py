"""An archive of the classes that Spark loads as it starts: a process with the archive starts with two thirds of the work.

`make test` runs this module if there is no archive. Java ignores an archive that does not fit its jars any more.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkContext

from lakehold.lake import connect
from lakehold.session import SHORT_RUN_OPTIONS

ARCHIVE = Path(__file__).parents[1] / "build" / "spark-classes.jsa"

JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
"""A variable with Java options of every Spark that a process or its children start."""

_TYPICAL = """
    CREATE NAMESPACE s;
    CREATE TABLE s.t USING iceberg AS SELECT id, 'a' AS name FROM range(10);
    MERGE INTO s.t USING (SELECT 3 AS id) AS u ON t.id = u.id WHEN MATCHED THEN DELETE;
    SELECT name, count(*) FROM s.t GROUP BY name
"""


def start_quickly(environment: MutableMapping[str, str]) -> None:
    """Let every Spark that gets this environment start quickly: tests end before code that is compiled well pays off."""
    archive = f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else ""
    environment[JAVA_OPTIONS] = f"-XX:TieredStopAtLevel=1{archive}"


def _make() -> None:
    """Run typical statements in a Spark that writes the archive as it ends."""
    ARCHIVE.parent.mkdir(exist_ok=True)
    made = ARCHIVE.with_suffix(".new")
    os.environ[JAVA_OPTIONS] = f"-XX:ArchiveClassesAtExit={made} -Xlog:disable"
    conf = {"spark.driver.extraJavaOptions": SHORT_RUN_OPTIONS}
    with (
        TemporaryDirectory() as directory,
        connect(f"{directory}/lake", spark_master="local[2]", spark_driver_memory="1g", spark_conf=conf) as lake,
    ):
        lake.sql(_TYPICAL)
        gateway = SparkContext._gateway
        assert gateway is not None
        java = gateway.proc
    java.stdin.close()
    java.wait()
    made.rename(ARCHIVE)


if __name__ == "__main__":
    _make()
