"""The sessions of a lake on a Spark Connect server: opened, kept alive, and stopped."""

from __future__ import annotations

import logging
import threading
from typing import Any
from weakref import WeakSet, ref

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakehold.errors import UpstreamUnavailable
from lakehold.session_settings import prepared
from lakehold.settings import Settings
from lakehold.spark_endpoint import names_lost_session, refuse_silent

log = logging.getLogger(__name__)

_KEEP_ALIVE_EVERY_S = 60.0
"""Servers keep a silent session for an hour by default."""

_lost: WeakSet[SparkSession] = WeakSet()
"""The sessions that their servers do not know any more; PySpark itself notices only servers that were started again."""

_used: WeakSet[SparkSession] = WeakSet()
"""The sessions of Spark Connect that lakes of this process have used; some of them are stopped."""


def any_open() -> bool:
    """Return whether a session that a lake has used is open; PySpark knows only its default and that of the thread."""
    return any(not getattr(session, "is_stopped", False) for session in list(_used))


def is_lost(session: SparkSession) -> bool:
    """Return whether a Spark Connect server refused the session because it does not know it, as after a restart."""
    return session in _lost or bool(getattr(session, "is_stopped", False))


def open_remote(remote: str, settings: Settings, closed: threading.Event) -> SparkSession:
    """Create a separate session on a server.

    Two lakes of one process must not share catalogs, nor close each other's session.

    Raises:
        UpstreamUnavailable: No server answers.
    """
    refuse_silent(remote, timeout_s=settings.upstream_timeout_ms / 1000)
    return ready(SparkSession.builder.remote(remote).create(), settings, closed)


def ready(session: SparkSession, settings: Settings, closed: threading.Event) -> SparkSession:
    """Prepare a session that lakehold opened, which its server does not forget until `closed` is set.

    The session is stopped if that fails.
    """
    from lakehold.spark_retries import WhileServerRuns  # noqa: PLC0415 - loads Spark Connect, which classic sessions do not use

    if settings.spark_remote:
        reference = ref(session)  # the session has the client, and the client its policies

        def lose() -> None:
            if (found := reference()) is not None:
                _lost.add(found)

        _client(session).set_retry_policies([WhileServerRuns(settings.spark_remote, lose)])
    try:
        prepared(session, settings)
    except BaseException:
        stop(session)
        raise
    keep_alive(session, closed)
    return session


def stop(session: SparkSession) -> None:
    """Stop a session that lakehold opened: Python waits at its end for the connection of one that is not stopped.

    A server that does not answer is asked once: nothing depends on its answer, and the retries would take ten minutes.
    """
    _client(session).set_retry_policies([])
    session.stop()


def keep_alive(session: SparkSession, closed: threading.Event) -> None:
    """Make the server remember a session until `closed` is set: a quiet source may be followed for days."""
    _used.add(session)
    threading.Thread(target=_keep_alive, args=(session, closed), name="lakehold-keep-alive", daemon=True).start()


def _keep_alive(session: SparkSession, closed: threading.Event) -> None:
    while not closed.wait(_KEEP_ALIVE_EVERY_S):
        if not answers(session) and is_lost(session):
            return


def answers(session: SparkSession) -> bool:
    """Return whether the session's server answers; if it does not know the session, `is_lost` is true afterwards."""
    try:
        session.conf.get("spark.sql.session.timeZone")
    except (PySparkException, UpstreamUnavailable, ValueError) as error:  # the last one once the connection is closed
        log.info("the session does not answer: %s", error)
        if names_lost_session(str(error)):
            _lost.add(session)
        return False
    return True


def _client(session: Any) -> Any:
    return session.client
