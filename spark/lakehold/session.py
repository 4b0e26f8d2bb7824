"""The Spark session: its configuration for the lake, classic or Connect, and the properties of its commits."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession, is_remote

from lakehold import artifacts, remote_session, spark_log
from lakehold.errors import EnvironmentMissing
from lakehold.executor_python import interpreter
from lakehold.iceberg.object_stores import checksum_variables, jar_set, java_options
from lakehold.iceberg.properties import spark_catalog_conf
from lakehold.session_settings import MERGE_CONF, VALUE_CONF, give, prepared
from lakehold.settings import Settings
from lakehold.spark_sql import PLAIN_TEXT_CONF

SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."

_VECTORIZATION = "spark.sql.iceberg.vectorization.enabled"

_AVRO_LIMITS = {"bytes": 1 << 26, "string": 1 << 26, "collectionItems": 1 << 22}

JVM_OPTIONS = " ".join(
    [
        *(f"-Dorg.apache.avro.limits.{what}.maxLength={limit}" for what, limit in _AVRO_LIMITS.items()),
        "-XX:-DontCompileHugeMethods",
    ]
)
"""Java options of driver and executors.

Without the limits, a corrupt record that claims to be 2 GiB long makes Avro ask for that memory, which takes the JVM down. With
them, the record is an ordinary error. The code that Spark generates for decoding is longer than the 8,000 bytes that Java
compiles by default: interpreted, it takes three times as long.
"""

_COLLECTOR = "-XX:+UseParallelGC"
"""A batch makes millions of short-lived rows, and no reader waits for a single one: throughput matters, not short pauses."""

SHORT_RUN_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Java options for a session that lives for about a minute: it gains more from compiling quickly than from compiling well."""

_QUIET = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"

_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"

EXTENSION = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
"""Adds Iceberg's statements to Spark's SQL."""

_CONNECT_MARK = "SPARK_CONNECT_MODE_ENABLED"
"""The variable of the environment by which PySpark marks a process that uses Spark Connect."""

_opening = threading.RLock()
"""Held while this process's classic session is opened or closed."""

_in_use: WeakKeyDictionary[SparkSession, threading.RLock] = WeakKeyDictionary()
"""A lock for each session, held while a statement relies on the session's settings and views: all its threads share these."""

_started_for: set[threading.Event] = set()
"""The lakes that use the classic Spark that lakehold started, each as its closing event; empty when others started it."""


def open_session(settings: Settings, closed: threading.Event) -> SparkSession:
    """Open a session whose default catalog is the lake: on `spark_remote` if set, else classic on `spark_master`.

    Args:
        settings: The settings of the lake.
        closed: An event that stands for the lake; `close_session` sets it, and nothing keeps the session alive after that.

    Raises:
        UpstreamUnavailable: No server answers at `spark_remote`.
    """
    if settings.spark_remote:
        return remote_session.open_remote(settings.spark_remote, settings, closed)
    # Without it executors run whatever `python3` is first on PATH. PySpark reads the variable only, not Spark's setting.
    os.environ["PYSPARK_PYTHON"] = interpreter(settings.spark_conf)
    conf = session_conf(settings)
    with _own_interrupts(), _opening:
        running = _running()
        is_own = bool(_started_for) or running is None
        session = _started(conf, settings.spark_master) if running is None else _beside(running, conf, settings)
        if is_own:
            _started_for.add(closed)
    try:
        return prepared(session, settings)
    except BaseException:
        # A lake that has no session does not close one.
        if _is_last(closed):
            session.stop()
        raise


def of_another_program(settings: Settings) -> SparkSession | None:
    """Return the classic session of this process beside which a lake would open its own, if lakehold did not start it."""
    with _opening:
        return None if settings.spark_remote or _started_for else _running()


def _beside(running: SparkSession, conf: Mapping[str, str], settings: Settings) -> SparkSession:
    """Return a session like `running` with the settings of `conf` that a running Spark takes; `running` stays as it is."""
    made = running.newSession()
    catalog = f"spark.sql.catalog.{settings.catalog_name}"
    # Of another lake of that name, which the new session has not opened.
    for name in [name for name in made.conf.getAll if name == catalog or name.startswith(f"{catalog}.")]:
        made.conf.unset(name)
    give(made, {**{n: v for n, v in running.conf.getAll.items() if not n.startswith("spark.sql.catalog.")}, **conf})
    return made


def _started(conf: Mapping[str, str], master: str) -> SparkSession:
    """Start a JVM with a session that has the settings of `conf`.

    Raises:
        EnvironmentMissing: The JVM ended before it was ready.
    """
    builder = SparkSession.builder.master(master).appName("lakehold")
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        with spark_log.apart():
            return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise EnvironmentMissing(
            "Spark's Java process ended before it was ready",
            code="java-start",
            detail="It says why on standard error, or in the log that the command names.",
            hint="Run lakehold doctor: it examines Java. Correct JAVA_HOME, or the settings spark_master and spark_conf, which "
            "has Java's options.",
        ) from error


def close_session(session: SparkSession, settings: Settings, closed: threading.Event) -> None:
    """Close a session of `open_session`, with the event `closed` that was given there.

    Classic Spark stops with the last lake that uses it, but never when others started it.
    """
    closed.set()
    if settings.spark_remote:
        remote_session.stop(session)
    elif _is_last(closed):
        session.stop()


def _is_last(closed: threading.Event) -> bool:
    """Take a lake from those that share the classic session; return whether it was the last one."""
    with _opening:
        is_last = _started_for == {closed}
        _started_for.discard(closed)
        return is_last


def _running() -> SparkSession | None:
    """Return the session of this process that a builder returns, if any; the active one may be another, made by `newSession`.

    Raises:
        EnvironmentMissing: The process uses Spark Connect, beside which PySpark has no classic session.
    """
    if is_remote() and not _has_active() and not remote_session.any_open():
        # PySpark does not take the mark back when the last session of Spark Connect stops, and programs inherit it. While the
        # mark is set, PySpark does not see classic sessions.
        os.environ.pop(_CONNECT_MARK, None)
    if is_remote():
        raise EnvironmentMissing(
            "a process with a session of Spark Connect cannot start a Spark of its own",
            code="spark-start",
            detail="PySpark has sessions of one kind at a time: another part of this program opened one of Spark Connect.",
            hint="Give lakehold a session (connect(…, spark=session.cloneSession())) or the address of the server "
            "(connect(…, spark_remote=…), LAKEHOLD_SPARK_REMOTE).",
        )
    return SparkSession.builder.getOrCreate() if _has_active() else None


def _has_active() -> bool:
    """Return whether PySpark has a session of the kind that the environment names, in this thread or as its default."""
    try:
        SparkSession.active()
    except PySparkRuntimeError:
        return False
    return True


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Restore the program's handler of Ctrl-C after Spark starts.

    PySpark replaces it by a handler that interrupts any conversation with Java.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def session_conf(settings: Settings) -> dict[str, str]:
    """Return the whole configuration of a classic session or of a Connect server over this lake."""
    return {
        **_fetched_jars(settings),
        "spark.driver.memory": settings.spark_driver_memory,
        **_of_this_machine(settings),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.extensions": EXTENSION,
        # Spark makes this directory, which stays empty; by default it is `spark-warehouse` in the working directory.
        "spark.sql.warehouse.dir": (artifacts.cache_root().absolute() / "spark-warehouse").as_uri(),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Remembering the Python line of every column expression doubles what planning a batch takes.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **spark_catalog_conf(settings),
        **{f"spark.executorEnv.{name}": value for name, value in checksum_variables(settings).items()},
        **MERGE_CONF,
        **settings.spark_conf,
        **PLAIN_TEXT_CONF,
        **VALUE_CONF,
        _DRIVER_OPTIONS: _java_options(settings, _DRIVER_OPTIONS, *java_options(settings), _QUIET),
        _EXECUTOR_OPTIONS: _java_options(settings, _EXECUTOR_OPTIONS),
    }


def _of_this_machine(settings: Settings) -> dict[str, str]:
    """Return the settings of a Spark without other machines: few tasks, and a driver that listens on this machine alone."""
    if not settings.spark_master.startswith("local"):
        return {}
    address = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {"spark.sql.shuffle.partitions": "8", **address}


def _fetched_jars(settings: Settings) -> dict[str, str]:
    """Return the setting that names the fetched jars; nothing is fetched if the user's settings bring Iceberg."""
    own = settings.spark_conf
    if "spark.jars" in own or "iceberg-spark-runtime" in own.get("spark.jars.packages", ""):
        return {}
    sets = [name for name in ("spark", jar_set(settings)) if name]
    try:
        return {"spark.jars": ",".join(str(path) for name in sets for path in artifacts.jars(name))}
    except EnvironmentMissing as error:
        if error.code == "artifact-fetch":
            packages = ",".join(each for name in sets for each in artifacts.coordinates(name).values())
            error.hint += (
                ' Or bring the jars yourself, in the setting spark_conf: {"spark.jars": "/a/folder/*.jar"} or '
                f'{{"spark.jars.packages": "{packages}"}}.'
            )
        raise


def _java_options(settings: Settings, name: str, *more: str) -> str:
    """Return the Java options for the setting `name`; the user's own collector replaces ours, since Java refuses two."""
    own = settings.spark_conf.get(name, "")
    collector = "" if re.search(r"-XX:\+Use\w+GC\b", own) else _COLLECTOR
    return " ".join(filter(None, (JVM_OPTIONS, *more, collector, own)))


def _alone(spark: SparkSession) -> threading.RLock:
    with _opening:
        return _in_use.setdefault(spark, threading.RLock())


@contextmanager
def snapshot_properties(spark: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Add `properties` to the summaries of the Iceberg snapshots that SQL commits inside.

    MERGE takes no options, so the session's configuration carries them.
    """
    with configured(spark, {SNAPSHOT_PROPERTY + name: value for name, value in properties.items()}):
        yield


@contextmanager
def configured(spark: SparkSession, conf: Mapping[str, str | None]) -> Iterator[None]:
    """Set `conf` for the statements inside, and restore the earlier values after them; other threads wait.

    A setting whose value is None is unset.
    """
    with _alone(spark):
        before = {name: spark.conf.get(name, None) for name in conf}
        _configure(spark, before, conf)
        try:
            yield
        finally:
            _configure(spark, conf, before)


def _configure(spark: SparkSession, present: Mapping[str, str | None], wanted: Mapping[str, str | None]) -> None:
    for name, value in wanted.items():
        if value is not None:
            spark.conf.set(name, value)
        elif present[name] is not None:
            spark.conf.unset(name)


def cloned(spark: Any) -> Any:
    """Clone a session of Spark Connect while no thread has settings of its own in it: the clone keeps what it finds."""
    with _alone(spark):
        return spark.cloneSession()


def row_by_row(spark: SparkSession) -> AbstractContextManager[None]:
    """Make the statements inside read Iceberg's files row by row: vectorized reads of many small files leak memory.

    `lakehold.tables.vectorized` decides when.
    """
    return configured(spark, {_VECTORIZATION: "false"})


@contextmanager
def temp_view(frame: DataFrame, name: str) -> Iterator[None]:
    """Let the statements inside read `frame` by `name`; other threads that name a view wait."""
    with _alone(frame.sparkSession):
        frame.createOrReplaceTempView(name)
        try:
            yield
        finally:
            frame.sparkSession.catalog.dropTempView(name)
