"""Spark sessions for the queries of clients: one for each query that runs, so that a query can be interrupted alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Lock, Thread

from pyspark.sql import SparkSession

from lakehold.lake import Lake
from lakehold.serve.admission import QUERY_CONF
from lakehold.session import is_lost

_LOOK_S = 0.2
"""How often a query is interrupted that nobody waits for and that goes on: Spark may have been between two jobs."""

_SETTLED_S = 3.0
"""How long a query is not interrupted: Spark Connect may lose a query that is canceled while it submits its first job, and
the job goes on without an owner."""


class QuerySessions:
    """Sessions like the lake's own, which are used again for later queries: no statement of a client changes its session.

    Args:
        lake: The lake.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._idle: list[SparkSession] = []
        self._opened = ExitStack()
        self._changing = Lock()

    def close(self) -> None:
        """Close all sessions."""
        self._opened.close()

    @contextmanager
    def borrowed(self, stop: Event) -> Iterator[SparkSession]:
        """Lend a session for one query, which is interrupted when `stop` is set: the query's own thread waits for Spark."""
        session, over, settled = self._take(), Event(), time.monotonic() + _SETTLED_S

        def interrupt() -> None:
            while not over.wait(_LOOK_S):
                if stop.is_set() and time.monotonic() > settled:
                    session.interruptAll()

        interrupting = Thread(target=interrupt, name="lakehold-interrupts", daemon=True)
        interrupting.start()
        try:
            yield session
        finally:
            over.set()
            interrupting.join()  # or it might interrupt the session's next query
            with self._changing:
                self._idle.append(session)

    def _take(self) -> SparkSession:
        with self._changing:
            while self._idle:
                if not is_lost(session := self._idle.pop()):
                    return session
            session = self._opened.enter_context(self._lake.another_session())
            for name, value in QUERY_CONF.items():
                session.conf.set(name, value)
            return session
