"""The Spark session of one lake: another program's, or one that is opened at its first use.

Methods import Spark when they open or close a session, so that a command without one does not load it.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock
from typing import TYPE_CHECKING

from lakehold.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LentSession:
    """The session of another lake of this process, which opens it again when it is lost, and closes it.

    Args:
        get: Returns the session.
    """

    def __init__(self, get: Callable[[], SparkSession]) -> None:
        self.get = get

    def close(self) -> None:
        """Leave the session open."""


class LakeSession:
    """The session of a lake.

    Args:
        settings: How it is opened.
        given: A session of another program, which stays open; None: the session is made here.
    """

    def __init__(self, settings: Settings, given: SparkSession | None) -> None:
        self._settings = settings
        self._given = given
        self._closed = Event()
        self._opening = Lock()
        self._session: SparkSession | None = None

    def get(self) -> SparkSession:
        """Return the session; opens another one if the server has lost it, so that long-lived clients survive a restart."""
        from lakehold.session import is_lost

        with self._opening:
            if self._session is not None and self._given is None and is_lost(self._session):
                # A session that is not stopped blocks the end of Python for ever.
                self._session.stop()
                self._session = None
            if self._session is None:
                self._session = self._open()
            return self._session

    def close(self) -> None:
        """Close the session if it was made here."""
        if self._given is None and self._session is not None:
            from lakehold.session import close_session

            close_session(self._session, self._settings, self._closed)

    def _open(self) -> SparkSession:
        from lakehold.given_session import refuse_incomplete
        from lakehold.session import open_session, prepared

        if self._given is None:
            return open_session(self._settings, self._closed)
        refuse_incomplete(self._given, self._settings)
        return prepared(self._given, self._settings)
