"""Spark sessions for the statements of clients: one for each that Spark computes, so that it can be interrupted alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Lock, Thread, local

from pyspark.sql import SparkSession

from lakehold.lake import Lake
from lakehold.remote_session import is_lost
from lakehold.serve.admission import QUERY_CONF

_LOOK_S = 0.2
"""How often a statement is interrupted that nobody waits for and that goes on: Spark may have been between two jobs."""

_SETTLED_S = 3.0
"""How long a statement is not interrupted: Spark Connect may lose a query that is canceled while it submits its first job, and
the job goes on without an owner."""


class QuerySessions:
    """Sessions like the lake's own, which are used again for later statements: no statement of a client changes its session.

    Args:
        lake: The lake.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._idle: list[SparkSession] = []
        self._opened = ExitStack()
        self._changing = Lock()
        self._here = local()

    def close(self) -> None:
        """Close all sessions."""
        self._opened.close()

    @contextmanager
    def borrowed(self, stop: Event) -> Iterator[None]:
        """Lend this thread sessions for one statement, which is interrupted when `stop` is set: the thread waits for Spark."""
        self._here.loan = loan = _Loan()
        over = Event()

        def interrupt() -> None:
            while not over.wait(_LOOK_S):
                if stop.is_set():
                    loan.interrupt()

        interrupting = Thread(target=interrupt, name="lakehold-interrupts", daemon=True)
        interrupting.start()
        try:
            yield
        finally:
            over.set()
            interrupting.join()  # or it might interrupt the session's next statement
            del self._here.loan
            if loan.session is not None:
                with self._changing:
                    self._idle.append(loan.session)

    def current(self) -> SparkSession:
        """Return the session of the statement that this thread runs, which gets one when Spark is needed for the first time."""
        loan: _Loan = self._here.loan
        if loan.session is None or is_lost(loan.session):
            loan.session = self._take()
        loan.used_s = time.monotonic()
        return loan.session

    def _take(self) -> SparkSession:
        with self._changing:
            while self._idle:
                if not is_lost(session := self._idle.pop()):
                    return session
            session = self._opened.enter_context(self._lake.another_session())
            for name, value in QUERY_CONF.items():
                session.conf.set(name, value)
            return session


class _Loan:
    """The session of one statement.

    Attributes:
        session: The session; None until Spark is needed.
        used_s: When the statement last asked for it.
    """

    def __init__(self) -> None:
        self.session: SparkSession | None = None
        self.used_s = 0.0

    def interrupt(self) -> None:
        """Interrupt what the session computes, unless it may just begin."""
        if self.session is not None and time.monotonic() > self.used_s + _SETTLED_S:
            self.session.interruptAll()
