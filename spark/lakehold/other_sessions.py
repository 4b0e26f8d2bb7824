"""Further Spark sessions of a lake: beside its own one, or as another process would have one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from lakehold.remote_session import open_remote, ready, stop
from lakehold.session import cloned, close_session
from lakehold.session_settings import give, prepared
from lakehold.settings import Settings


@contextmanager
def another_session(spark: SparkSession, settings: Settings) -> Iterator[SparkSession]:
    """Open one more session like `spark`, with settings and views of its own, until the context ends."""
    if hasattr(spark, "cloneSession"):  # of Spark Connect, which has no `newSession`
        clone, closed = cloned(spark), threading.Event()
        # PySpark 4.1 does not set this for clones, and does not stop them without.
        clone.release_session_on_close = True
        try:
            yield ready(clone, settings, closed)
        finally:
            closed.set()
            stop(clone)
        return
    made = spark.newSession()
    give(made, spark.conf.getAll)
    yield prepared(made, settings)


@contextmanager
def separate_session(spark: SparkSession, settings: Settings) -> Iterator[SparkSession]:
    """Open a session as another process would until the context ends: without the functions, variables and views of `spark`.

    A session of Spark Connect that was given to lakehold is cloned with them: it does not say where its server is.
    """
    if not (settings.spark_remote and hasattr(spark, "cloneSession")):
        with another_session(spark, settings) as made:
            yield made
        return
    closed = threading.Event()
    made = open_remote(settings.spark_remote, settings, closed)
    try:
        yield made
    finally:
        close_session(made, settings, closed)
