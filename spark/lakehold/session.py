"""The Spark session: how it is configured for the lake, classic or Connect, and how a commit gets its properties."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from lakehold import artifacts
from lakehold.catalog.properties import spark_catalog_conf
from lakehold.settings import Settings

SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."

MERGE_CONF: Mapping[str, str] = {
    # The join follows the table's buckets: the batch is shuffled to them, the table is not (facts, "measured").
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.sources.v2.bucketing.shuffle.enabled": "true",
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.join.preferSortMergeJoin": "false",
    # A large batch is cached for the moments it takes to count and to merge it: compressing it took a third of the whole.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}
"""What a session needs so that a merge costs what changed; set on sessions made by others, too."""

_AVRO_LIMITS = {"bytes": 1 << 26, "string": 1 << 26, "collectionItems": 1 << 22}

JVM_OPTIONS = " ".join(
    [
        *(f"-Dorg.apache.avro.limits.{what}.maxLength={limit}" for what, limit in _AVRO_LIMITS.items()),
        "-XX:-DontCompileHugeMethods",
    ]
)
"""Java options of driver and executors.

Without the limits Avro believes a corrupt record that says it is 2 GiB long, asks for the memory and takes the JVM down; with
them such a record is an error like any other. The code that Spark generates for decoding is longer than the 8,000 bytes that
Java compiles by default: interpreted, it takes three times as long.
"""

_COLLECTOR = "-XX:+UseParallelGC"
"""A batch is short-lived rows by the million, and nobody waits for a single one: throughput, not short pauses."""

SHORT_RUN_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options for a session of a minute: compiling quickly is worth more to it than compiling well."""

_QUIET = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_session_state = threading.RLock()
"""Held while one thread's statement relies on the session's settings and views, which all threads of a session share."""


def open_session(settings: Settings) -> SparkSession:
    """A session whose default catalog is the lake: on `spark_remote` if set, else classic on `spark_master`."""
    if settings.spark_remote:
        return prepared(SparkSession.builder.remote(settings.spark_remote).getOrCreate(), settings)
    # Without it Python workers run whatever `python3` is first on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(settings.spark_master).appName("lakehold")
    for name, value in session_conf(settings).items():
        builder = builder.config(name, value)
    with _own_interrupts():
        session = builder.getOrCreate()
    return prepared(session, settings)


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """PySpark takes Ctrl-C from the program: its handler breaks into whatever talks to Java at that moment."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def session_conf(settings: Settings) -> dict[str, str]:
    """The whole configuration of a classic session or of a Connect server over this lake."""
    return {
        "spark.jars": ",".join(str(path) for path in artifacts.jars("spark")),
        "spark.driver.memory": settings.spark_driver_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Remembering the Python line of every column expression doubles what planning a batch takes.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **spark_catalog_conf(settings),
        **MERGE_CONF,
        **settings.spark_conf,
        _JAVA_OPTIONS: _java_options(settings.spark_conf.get(_JAVA_OPTIONS, "")),
    }


def _java_options(own: str) -> str:
    """The options of the driver; Java refuses to start with two collectors, so that the user's own is the only one."""
    collector = "" if re.search(r"-XX:\+Use\w+GC\b", own) else _COLLECTOR
    return " ".join(filter(None, (JVM_OPTIONS, _QUIET, collector, own)))


def prepared(spark: SparkSession, settings: Settings) -> SparkSession:
    """`spark`, which may be somebody else's, with the settings a batch relies on."""
    needed = {**MERGE_CONF, "spark.sql.session.timeZone": "UTC"}
    catalog = f"spark.sql.catalog.{settings.catalog_name}"
    if spark.conf.get(catalog, None) is None:
        needed |= {name: value for name, value in spark_catalog_conf(settings).items() if name.startswith(catalog)}
    for name, value in needed.items():
        spark.conf.set(name, value)
    # The statement knows its session in every thread; `spark.catalog` looks for the one that is active in this thread.
    spark.sql(f"SET CATALOG {quoted(settings.catalog_name)}")
    return spark


@contextmanager
def snapshot_properties(spark: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Iceberg snapshots that SQL commits inside carry `properties` in their summary.

    MERGE takes no options, so the session's configuration does it.
    """
    with configured(spark, {SNAPSHOT_PROPERTY + name: value for name, value in properties.items()}):
        yield


@contextmanager
def configured(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Statements inside run with `conf`; those of other threads wait."""
    with _session_state:
        for name, value in conf.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name in conf:
                spark.conf.unset(name)


@contextmanager
def temp_view(frame: DataFrame, name: str) -> Iterator[None]:
    """Statements inside can read `frame` by `name`; other threads that name a view wait."""
    with _session_state:
        frame.createOrReplaceTempView(name)
        try:
            yield
        finally:
            frame.sparkSession.catalog.dropTempView(name)


def quoted(name: str) -> str:
    """`name` as a Spark SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def quoted_table(catalog: str, full_name: str) -> str:
    """`catalog.namespace.table` as a Spark SQL identifier."""
    return ".".join(quoted(part) for part in (catalog, *full_name.split(".")))
