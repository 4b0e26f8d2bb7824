"""The Spark session: how it is configured for the lake, classic or Connect, and how a commit gets its properties."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession

from lakehold import artifacts
from lakehold.errors import DefinitionError, UpstreamUnavailable
from lakehold.iceberg.properties import spark_catalog_conf
from lakehold.settings import Settings
from lakehold.spark_sql import PLAIN_TEXT_CONF, quoted

log = logging.getLogger(__name__)

SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."

_VECTORIZATION = "spark.sql.iceberg.vectorization.enabled"

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

SHORT_RUN_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Java options for a session of a minute: compiling quickly is worth more to it than compiling well."""

_QUIET = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_CONNECT_PORT = 15_002
"""Of an address without one, as Spark has it."""

_HEARD_OF_EVERY_S = 60.0
"""Servers keep a silent session for an hour, unless they are configured otherwise."""

_opening = threading.RLock()
"""Held while this process's classic session is opened or closed."""

_in_use: WeakKeyDictionary[SparkSession, threading.RLock] = WeakKeyDictionary()
"""Locks, held while one thread's statement relies on the session's settings and views, which all threads of a session share."""

_started_for: set[threading.Event] = set()
"""The lakes that share this process's classic session, each as the event it is closed with; empty when others started Spark."""


def open_session(settings: Settings, closed: threading.Event) -> SparkSession:
    """A session whose default catalog is the lake: on `spark_remote` if set, else classic on `spark_master`.

    Args:
        settings: Which, and of which lake.
        closed: Set by the caller when it stops the session.

    Raises:
        UpstreamUnavailable: Nobody answers at `spark_remote`.
    """
    if settings.spark_remote:
        return _open_remote(settings.spark_remote, settings, closed)
    # Without it Python workers run whatever `python3` is first on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(settings.spark_master).appName("lakehold")
    for name, value in session_conf(settings).items():
        builder = builder.config(name, value)
    with _own_interrupts(), _opening:
        running = _running()
        if running is not None:
            _refuse_other_lake(running, settings)
        if _started_for or running is None:
            _started_for.add(closed)
        session = builder.getOrCreate()
    return prepared(session, settings)


def close_session(session: SparkSession, settings: Settings, closed: threading.Event) -> None:
    """Let go of what `open_session` gave: classic Spark stops with the last lake that uses it, never when others started it."""
    closed.set()
    with _opening:
        is_last = _started_for == {closed}
        _started_for.discard(closed)
    if is_last or settings.spark_remote:
        session.stop()


def _running() -> SparkSession | None:
    """The classic session that this process has."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _open_remote(remote: str, settings: Settings, closed: threading.Event) -> SparkSession:
    """A session of its own on a server: two lakes of one process must not share catalogs, nor close each other's."""
    _refuse_silent(remote, timeout_s=settings.upstream_timeout_ms / 1000)
    session = prepared(SparkSession.builder.remote(remote).create(), settings)
    threading.Thread(target=_keep_alive, args=(session, closed), name="lakehold-keep-alive", daemon=True).start()
    return session


def _refuse_silent(remote: str, timeout_s: float) -> None:
    """Spark's own client tries for ten minutes, and says nothing meanwhile."""
    address = urlsplit(remote)
    try:
        place = (address.hostname or "", address.port or _CONNECT_PORT)
        socket.create_connection(place, timeout=timeout_s).close()
    except (OSError, ValueError) as error:
        raise UpstreamUnavailable(
            "Spark Connect does not answer",
            code="spark-unreachable",
            detail=f"{address.scheme}://{address.netloc}: {error}.",
            hint="Start a server on this machine with lakehold spark up, or correct or unset LAKEHOLD_SPARK_REMOTE.",
        ) from error


def _keep_alive(session: SparkSession, closed: threading.Event) -> None:
    """Be heard of while nothing is asked, or the server forgets the session: a quiet source may be followed for days."""
    while not closed.wait(_HEARD_OF_EVERY_S):
        try:
            session.conf.get("spark.sql.session.timeZone")
        except (PySparkException, ValueError) as error:  # the latter once the connection is closed
            if not closed.is_set():
                log.warning("the Spark Connect server does not know the session any more: %s", error)
            return


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
        **PLAIN_TEXT_CONF,
        _JAVA_OPTIONS: _java_options(settings.spark_conf.get(_JAVA_OPTIONS, "")),
    }


def _java_options(own: str) -> str:
    """The options of the driver; Java refuses to start with two collectors, so that the user's own is the only one."""
    collector = "" if re.search(r"-XX:\+Use\w+GC\b", own) else _COLLECTOR
    return " ".join(filter(None, (JVM_OPTIONS, _QUIET, collector, own)))


def prepared(spark: SparkSession, settings: Settings) -> SparkSession:
    """`spark`, which may be somebody else's, with the settings a batch relies on.

    Raises:
        DefinitionError: Its catalog of that name is another lake's.
    """
    _refuse_other_lake(spark, settings)
    needed = {**MERGE_CONF, "spark.sql.session.timeZone": "UTC"}
    # Spark Connect warns whoever sets one that is deprecated, whatever its value is.
    needed |= {name: value for name, value in PLAIN_TEXT_CONF.items() if spark.conf.get(name) != value}
    catalog = f"spark.sql.catalog.{settings.catalog_name}"
    if spark.conf.get(catalog, None) is None:
        needed |= {name: value for name, value in spark_catalog_conf(settings).items() if name.startswith(catalog)}
    for name, value in needed.items():
        spark.conf.set(name, value)
    # The statement knows its session in every thread; `spark.catalog` looks for the one that is active in this thread.
    spark.sql(f"SET CATALOG {quoted(settings.catalog_name)}")
    return spark


@contextmanager
def another_session(spark: SparkSession, settings: Settings) -> Iterator[SparkSession]:
    """Give one more session like `spark`, whose settings and views change alone until the context ends."""
    if hasattr(spark, "cloneSession"):  # of Spark Connect, which has no `newSession`
        clone = spark.cloneSession()
        # PySpark 4.1 forgets to say it of clones, and does not stop them without.
        clone.release_session_on_close = True
        try:
            yield prepared(clone, settings)
        finally:
            # What nobody stops waits for its connection when Python ends, for ever.
            clone.stop()
        return
    made = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if made.conf.get(name, None) != value and made.conf.isModifiable(name):
            made.conf.set(name, value)
    yield prepared(made, settings)


def _refuse_other_lake(spark: SparkSession, settings: Settings) -> None:
    """A session opens a catalog once: a second lake of the same name would read and write the first one's tables."""
    name = f"spark.sql.catalog.{settings.catalog_name}.warehouse"
    other, own = spark.conf.get(name, None), spark_catalog_conf(settings)[name]
    if other is not None and other.rstrip("/") != own.rstrip("/"):
        raise DefinitionError(
            f'catalog "{settings.catalog_name}" of the Spark session is another lake',
            code="catalog-taken",
            detail=f"Its warehouse is {other}, this lake's is {own}.",
            hint="Give one of them another name: connect(…, catalog_name=…) or LAKEHOLD_CATALOG_NAME.",
        )


def _alone(spark: SparkSession) -> threading.RLock:
    with _opening:
        return _in_use.setdefault(spark, threading.RLock())


@contextmanager
def snapshot_properties(spark: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Iceberg snapshots that SQL commits inside carry `properties` in their summary.

    MERGE takes no options, so the session's configuration does it.
    """
    with configured(spark, {SNAPSHOT_PROPERTY + name: value for name, value in properties.items()}):
        yield


@contextmanager
def configured(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Statements inside run with `conf`, those behind it with what was set before; those of other threads wait."""
    with _alone(spark):
        before = {name: spark.conf.get(name, None) for name in conf}
        for name, value in conf.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, earlier in before.items():
                if earlier is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, earlier)


def row_by_row(spark: SparkSession) -> AbstractContextManager[None]:
    """Statements inside read Iceberg's files row by row, see `lakehold.ingest.write.vectorized`."""
    return configured(spark, {_VECTORIZATION: "false"})


@contextmanager
def temp_view(frame: DataFrame, name: str) -> Iterator[None]:
    """Statements inside can read `frame` by `name`; other threads that name a view wait."""
    with _alone(frame.sparkSession):
        frame.createOrReplaceTempView(name)
        try:
            yield
        finally:
            frame.sparkSession.catalog.dropTempView(name)
